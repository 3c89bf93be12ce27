// The table of inner loops, compiled once per tier from the same sources (ops/*.hpp). Every tier computes the same bits:
// products are exact integers, and each fp32 operation keeps its one order. docs/numerics.md defines them.
#pragma once

#include <cstdint>

#include "attention_args.hpp"

namespace twofold {

constexpr long kTileRows = 16;
constexpr long kBlockInputs = 16;
constexpr long kMaxRoundedStrip = 64;

enum class Exchange : int { float32 = 0, float16 = 1, bfloat16 = 2 };

// Quantised rows as a product reads them: t = 254 * q0 + q1 (two planes) or q0 (one), in int16, group by group and row by
// row: t[(group * rows + row) * group_size], inside it quads of inputs ordered 0, 2, 1, 3; and the planes apart, in the
// order of the inputs: q[((group * rows + row) * 2 + plane) * group_size], the second one unset where there is none.
struct Activations {
  const std::int16_t* t;
  const std::int8_t* q;
  int planes;
  const std::int32_t* sums;  // of t, [groups][rows]
  const float* unit;         // what one step of t is worth, [groups][rows]
};

// One half of a split weight: the base (bits = 2) or the residual.
struct Codes {
  const std::uint8_t* codes;   // [tiles][blocks][32 * bits]
  const std::uint16_t* scales;  // fp16 [tiles][groups][16]
  int bits;
  std::uint8_t levels[4];  // the base's levels less the lowest
  int offset;              // what the unsigned integers exceed the true ones by: minus the lowest level, or qm
};

struct ProductArgs {
  long rows, blocks, groups, group_size;
  Activations x_base, x_residual;
  Codes base, residual;
  bool use_residual;
  Exchange exchange;
  float* y;  // [rows][stride], 16 outputs a tile
  long stride;
};

// One block of columns to round; arrays are [columns][rows], a row being one output of a Linear.
struct RoundColumnsArgs {
  float* weights;         // become the errors
  const float* target;
  const float* feedback;  // [column][column before it]
  const float* scale;     // [rows]
  std::int8_t* levels;
  long columns, rows;
  bool four_levels;  // +-inner and +-highest, or every integer up to highest
  float inner, highest;
};

// A loop of multiply-adds alone: `each` of them a repetition; returns the sum of all products modulo 2^32.
struct MultiplyAdd {
  const char* instruction;
  long each;
  int largest;  // product that it takes, in size
  std::uint32_t (*run)(long repetitions, int weight, int activation);
};

constexpr long kTotalPiece = 1 << 12;  // values whose softmax weights are summed at once; kernels/naive/softmax.py

struct Kernels {
  void (*rms_norm)(const float* x, const float* weight, float eps, long n, float* out);
  // In place over t [dim] with scratch [dim]; mix may be null.
  void (*rotate)(const float* x, const std::int8_t* signs, const float* mix, long dim, float* t, float* scratch);
  void (*unrotate)(const float* y, const std::int8_t* signs, const float* mix, long dim, float* out, float* scratch);
  // One row to t, q, sums and unit of an `Activations` of `rows` rows; pointers are that row's own first elements.
  void (*quantize)(const float* x, long n, int planes, long rows, long group_size, std::int16_t* t, std::int8_t* q,
                   std::int32_t* sums, float* unit);
  void (*product)(const ProductArgs& args, long tile_begin, long tile_end);
  void (*rope)(const float* x, const float* cos, const float* sin, long heads, long dim, long half, float* out);
  void (*silu_mul)(const float* gate, const float* up, long n, float* out);
  void (*gelu_mul)(const float* gate, const float* up, long n, float* out);
  void (*add)(const float* x, const float* y, long n, float* out);
  void (*embed)(const std::uint16_t* row, long n, float* out);
  long (*argmax)(const float* x, long n);  // -1 where one of them is not finite
  // Of at most kTotalPiece values, none above peak.
  double (*softmax_total)(const float* x, long n, float peak, float sharpness);
  // A head's query as the type of K wants it [query_floats()]; scratch [whole blocks of dim].
  void (*attention_query)(const float* q, long dim, KvType type, float* out, float* scratch);
  void (*attention_chunk)(const AttentionArgs& args, const AttentionTask& task);
  void (*attention_join)(float* running, const float* part, long v_dim);
  void (*attention_close)(const float* part, long v_dim, KvType type, float* out);
  // A head's vector to the cache's bytes; scratch [whole blocks of dim].
  void (*kv_write)(const float* x, long dim, KvType type, std::uint8_t* out, float* scratch);
  // Rows row_begin .. row_end - 1; scratch [columns][kMaxRoundedStrip].
  void (*round_columns)(const RoundColumnsArgs& args, long row_begin, long row_end, float* scratch);
  MultiplyAdd pairs, bytes;  // what the product is made of: 16-bit products, and 8-bit ones (null where the tier has none)
};

extern const Kernels kKernelsGeneric;
#if defined(__x86_64__)
extern const Kernels kKernelsAvx2;
extern const Kernels kKernelsAvx2Vnni;  // the avx2 tier where the machine has AVX-VNNI
extern const Kernels kKernelsAvx512;
extern const Kernels kKernelsAvx512Vbmi;
#endif

}  // namespace twofold
