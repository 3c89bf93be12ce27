// The operations that a tape is made of, appended one by one. A new one needs: its function here, its checked binding in
// bind_tape.cpp, and its line in engine/native_replay.py. What is pointed to must live as long as the tape; shapes are checked
// by the caller, what varies between replays by checks that these functions add.
#pragma once

#include <string>

#include "tape.hpp"

namespace twofold {

// fp16 rows of `table` [vocab][hidden] times `scale`.
void add_embed(Tape& tape, const std::uint16_t* table, long vocab, long hidden, float scale, Rows out);
// Over each of `vectors` vectors of n values in a row.
void add_rms_norm(Tape& tape, Rows x, const float* weight, float eps, long vectors, long n, Rows out);
// `label` names the group in profiles.
void add_split_linear(Tape& tape, const SplitLinear& weights, const std::string& label, Rows x, Rows out);

// cos and sin [capacity][half], of which the first *filled positions are valid.
struct RopeTables {
  const float *cos, *sin;
  const std::int64_t* filled;
  long capacity, half;
};
void add_rope(Tape& tape, Rows x, RopeTables tables, long heads, long dim, Rows out);

// fp16 [slots][n]; x's rows go to the slots behind the committed ones.
// K or V of a layer; slot 0 holds position *first_position.
struct KvTarget {
  std::uint8_t* data;
  KvType type;
  long slots, kv_heads, dim;
  const std::int64_t* first_position;
};
void add_kv_write(Tape& tape, Rows x, const KvTarget& to);
void add_attention(Tape& tape, const AttentionArgs& args, const std::int64_t* first_position, long slots, long window);
void add_silu_mul(Tape& tape, Rows gate, Rows up, long n, Rows out);
void add_gelu_mul(Tape& tape, Rows gate, Rows up, long n, Rows out);
void add_add(Tape& tape, Rows x, Rows y, long n, Rows out);
// The id of each row's largest of n values as a float, -1 where one is not finite; nothing where the base multiplies alone. x's
// rows are contiguous.
void add_argmax(Tape& tape, Rows x, long n, Rows out);
void add_copy(Tape& tape, Rows x, long n, Rows out);

}  // namespace twofold
