// The tables of inner loops against the generic one, bit for bit, called directly: no dispatch, so that a tier which the
// machine lacks can be compiled over emulated instructions (emulated.hpp) and tested all the same. Rotations, the generic
// ones too, against their definition.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "kernels.hpp"

namespace {

using namespace twofold;

std::mt19937 random_bits(7);

long below(long n) { return static_cast<long>(random_bits() % static_cast<unsigned>(n)); }

template <class T>
std::vector<T> random_values(long n) {
  std::vector<T> values(static_cast<std::size_t>(n));
  for (T& value : values) value = static_cast<T>(random_bits());
  return values;
}

std::vector<float> random_floats(long n) {
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<std::size_t>(n));
  for (float& value : values) value = normal(random_bits);
  return values;
}

struct Case {
  long tiles, inputs, rows, group_size;
  int bits, base_planes, residual_planes;
  const std::uint8_t* levels;  // less the lowest
  Exchange exchange;
  bool use_residual;
};

// As far apart as levels can be; the furthest whose products still add up in 16 bits; one step further; and usual ones.
constexpr std::uint8_t kLevels[4][4] = {{0, 89, 165, 254}, {0, 11, 21, 32}, {0, 12, 22, 33}, {0, 7, 13, 20}};

struct Data {
  std::vector<std::uint8_t> base, residual;
  std::vector<std::uint16_t> base_scales, residual_scales;
  std::vector<float> x;
};

struct Rows {
  std::vector<std::int16_t> t;
  std::vector<std::int8_t> q;
  std::vector<std::int32_t> sums;
  std::vector<float> unit;
  int planes;
  Activations view() const { return {t.data(), q.data(), planes, sums.data(), unit.data()}; }
};

long groups(const Case& c) { return (c.inputs + c.group_size - 1) / c.group_size; }

Rows quantised(const Kernels& k, const Case& c, const std::vector<float>& x, int planes) {
  const std::size_t n = static_cast<std::size_t>(groups(c) * c.rows * c.group_size);
  Rows rows{std::vector<std::int16_t>(n), std::vector<std::int8_t>(2 * n),
            std::vector<std::int32_t>(static_cast<std::size_t>(groups(c) * c.rows)),
            std::vector<float>(static_cast<std::size_t>(groups(c) * c.rows)), planes};
  for (long row = 0; row < c.rows; ++row) {
    k.quantize(x.data() + row * c.inputs, c.inputs, planes, c.rows, c.group_size, rows.t.data() + row * c.group_size,
               rows.q.data() + 2 * row * c.group_size, rows.sums.data() + row, rows.unit.data() + row);
  }
  return rows;
}

template <class T>
void same(const std::vector<T>& expected, const std::vector<T>& found, const std::string& what, const std::string& tier) {
  if (std::memcmp(expected.data(), found.data(), expected.size() * sizeof(T)) == 0) return;
  std::fprintf(stderr, "%s: %s has other bits\n", tier.c_str(), what.c_str());
  std::exit(1);
}

std::vector<float> product(const Kernels& k, const Case& c, const Data& data, const Rows& base, const Rows& residual) {
  const long stride = c.tiles * kTileRows;
  std::vector<float> y(static_cast<std::size_t>(c.rows * stride), -1.0f);
  ProductArgs args{};
  args.rows = c.rows, args.blocks = (c.inputs + 15) / 16, args.groups = groups(c), args.group_size = c.group_size;
  args.x_base = base.view(), args.x_residual = residual.view();
  args.base = {data.base.data(), data.base_scales.data(), 2, {}, c.levels[3] / 2};
  for (int i = 0; i < 4; ++i) args.base.levels[i] = c.levels[i];
  args.residual = {data.residual.data(), data.residual_scales.data(), c.bits, {}, (1 << (c.bits - 1)) - 1};
  args.use_residual = c.use_residual, args.exchange = c.exchange;
  args.y = y.data(), args.stride = stride;
  k.product(args, 0, c.tiles / 2);  // a split at any tile
  k.product(args, c.tiles / 2, c.tiles);
  return y;
}

Data random_data(const Case& c) {
  const long blocks = (c.inputs + 15) / 16, n_scales = c.tiles * groups(c) * 16;
  Data data{random_values<std::uint8_t>(c.tiles * blocks * 64), random_values<std::uint8_t>(c.tiles * blocks * 32 * c.bits),
            random_values<std::uint16_t>(n_scales), random_values<std::uint16_t>(n_scales), random_floats(c.rows * c.inputs)};
  for (auto* scales : {&data.base_scales, &data.residual_scales}) {
    for (auto& scale : *scales) scale = static_cast<std::uint16_t>((scale & 0x83FF) | 0x3000);
  }
  return data;
}

void compare(const Kernels& generic, const Kernels& tier, const std::string& name, const Case& c) {
  const Data data = random_data(c);
  const Rows base = quantised(generic, c, data.x, c.base_planes), residual = quantised(generic, c, data.x, c.residual_planes);
  const Rows found = quantised(tier, c, data.x, c.base_planes);
  same(base.t, found.t, "t of quantize", name);
  same(base.q, found.q, "q of quantize", name);
  same(base.sums, found.sums, "sums of quantize", name);
  same(base.unit, found.unit, "unit of quantize", name);
  const std::string what = "product of " + std::to_string(c.rows) + " rows, " + std::to_string(c.bits) + " bits, " +
                           std::to_string(c.inputs) + " inputs in groups of " + std::to_string(c.group_size) + ", planes " +
                           std::to_string(c.base_planes) + " and " + std::to_string(c.residual_planes);
  same(product(generic, c, data, base, residual), product(tier, c, data, base, residual), what.c_str(), name);
}

// All integers and activations as large as they can be, where sums of 16 bits would overflow first.
void compare_largest(const Kernels& generic, const Kernels& tier, const std::string& name, int bits, long rows) {
  const Case c{2, 256, rows, 128, bits, 1, 1, kLevels[1], Exchange::float32, true};
  Data data = random_data(c);
  for (auto& code : data.base) code = 0xFF;
  for (auto& code : data.residual) code = 0xFF;
  for (auto& value : data.x) value = random_bits() & 1 ? 1.0f : -1.0f;
  for (long i = 0; i < c.inputs; ++i) data.x[static_cast<std::size_t>(i)] = i < 128 ? 1.0f : -1.0f;
  const Rows x = quantised(generic, c, data.x, 1);
  same(product(generic, c, data, x, x), product(tier, c, data, x, x), "product of the largest integers", name);
}

// As docs/numerics.md has it, one stride after the other.
void butterflies(std::vector<float>& t, std::size_t width) {
  for (std::size_t stride = 1; stride < width; stride *= 2) {
    for (std::size_t i = 0; i < t.size(); ++i) {
      if ((i & stride) != 0) continue;
      const float a = t[i], b = t[i + stride];
      t[i] = a + b, t[i + stride] = a - b;
    }
  }
  for (float& value : t) value *= static_cast<float>(1.0 / std::sqrt(static_cast<double>(width)));
}

std::vector<float> mixed(const std::vector<float>& t, const std::vector<float>& mix, std::size_t m, bool transposed) {
  const std::size_t width = t.size() / m;
  std::vector<float> out(t.size());
  for (std::size_t d = 0; d < m; ++d) {
    for (std::size_t i = 0; i < t.size(); ++i) {
      out[d * width + i % width] += (transposed ? mix[i / width * m + d] : mix[d * m + i / width]) * t[i];
    }
  }
  return out;
}

void compare_rotation(const Kernels& kernels, long dim, const std::string& name) {
  const std::size_t size = static_cast<std::size_t>(dim), width = static_cast<std::size_t>(dim & -dim), m = size / width;
  const std::vector<float> x = random_floats(dim), mix = random_floats(static_cast<long>(m * m));
  std::vector<std::int8_t> signs(size);
  for (auto& sign : signs) sign = random_bits() & 1 ? 1 : -1;
  std::vector<float> scratch(size), found(size), right(x);
  const float* mixer = m > 1 ? mix.data() : nullptr;

  for (std::size_t i = 0; i < size; ++i) right[i] *= static_cast<float>(signs[i]);
  butterflies(right, width);
  if (m > 1) right = mixed(right, mix, m, false);
  kernels.rotate(x.data(), signs.data(), mixer, dim, found.data(), scratch.data());
  same(right, found, "rotate " + std::to_string(dim), name);

  right = m > 1 ? mixed(x, mix, m, true) : x;
  butterflies(right, width);
  for (std::size_t i = 0; i < size; ++i) right[i] *= static_cast<float>(signs[i]);
  kernels.unrotate(x.data(), signs.data(), mixer, dim, found.data(), scratch.data());
  same(right, found, "unrotate " + std::to_string(dim), name);
}

// Every width to 16384 alone and with mixes of 3, 5, 7 and more.
void compare_rotations(const Kernels& kernels, const std::string& name) {
  for (long width = 1; width <= 16384; width *= 2) {
    for (long m : {1L, 3L, 5L, 7L}) compare_rotation(kernels, m * width, name);
  }
  for (long dim : {576L, 2816L, 5376L}) compare_rotation(kernels, dim, name);
}

// What choosing reads all logits for.
void compare_choices(const Kernels& generic, const Kernels& tier, const std::string& name) {
  for (long n : {1L, 15L, 16L, 17L, 63L, 64L, 80L, 4095L, 4096L}) {
    std::vector<float> x = random_floats(n);
    for (float& value : x) value = std::round(4.0f * value);  // many equals
    const float peak = *std::max_element(x.begin(), x.end());
    const std::vector<long> right{generic.argmax(x.data(), n)}, found{tier.argmax(x.data(), n)};
    same(right, found, "argmax of " + std::to_string(n), name);
    for (float sharpness : {0.01f, 1.25f, 1e30f}) {
      const std::vector<double> total{generic.softmax_total(x.data(), n, peak, sharpness)},
          other{tier.softmax_total(x.data(), n, peak, sharpness)};
      same(total, other, "softmax_total of " + std::to_string(n), name);
    }
    for (float bad : {INFINITY, -INFINITY, NAN}) {
      x[static_cast<std::size_t>(below(n))] = bad;
      same(std::vector<long>{-1}, std::vector<long>{tier.argmax(x.data(), n)}, "argmax of what is not finite", name);
    }
  }
}

void compare_all(const Kernels& generic, const Kernels& tier, const std::string& name) {
  compare_rotations(tier, name);
  compare_choices(generic, tier, name);
  for (int bits = 4; bits <= 8; ++bits) {
    for (long rows = 1; rows <= 33; ++rows) {
      const int planes = static_cast<int>(below(4));
      const long group_size = 16 * (1 + below(16)), inputs = 1 + below(3 * group_size);
      compare(generic, tier, name,
              {1 + below(4), inputs, rows, group_size, bits, 1 + planes % 2, 1 + planes / 2, kLevels[below(4)],
               static_cast<Exchange>(below(3)), rows % 5 != 0});
    }
    for (long rows : {1L, 3L, 6L}) compare_largest(generic, tier, name, bits, rows);
    for (int planes = 1; planes <= 2; ++planes) {
      for (long rows : {1L, 3L, 130L}) {
        compare(generic, tier, name, {2, 576, rows, 128, bits, planes, planes, kLevels[planes], Exchange::float32, true});
      }
    }
    for (const std::uint8_t* levels : kLevels) {  // a draft's
      for (long rows : {1L, 2L, 3L, 4L, 9L}) {
        compare(generic, tier, name, {2, 576, rows, 128, bits, 1, 1, levels, Exchange::float32, false});
      }
    }
  }
  std::printf("%s: the same bits as generic\n", name.c_str());
}

}  // namespace

int main() {
  compare_rotations(kKernelsGeneric, "generic");
  compare_choices(kKernelsGeneric, kKernelsGeneric, "generic");
#if defined(TEST_AVX2)
  compare_all(kKernelsGeneric, kKernelsAvx2, "avx2");
#endif
#if defined(TEST_AVX2VNNI)
  compare_all(kKernelsGeneric, kKernelsAvx2Vnni, "avx2 with AVX-VNNI");
#endif
#if defined(TEST_AVX512)
  compare_all(kKernelsGeneric, kKernelsAvx512, "avx512");
#endif
#if defined(TEST_AVX512VBMI)
  compare_all(kKernelsGeneric, kKernelsAvx512Vbmi, "avx512vbmi");
#endif
}
