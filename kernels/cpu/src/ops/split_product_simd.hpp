// The split product with AVX2 or AVX-512: a residual width and a number of rows choose the loop.
#pragma once

#include "split_single.hpp"
#include "split_stream.hpp"
#include "split_strip.hpp"

namespace twofold {
namespace {

// One row in the loop that is made for it; false where another has to do it.
template <bool kWhole, class Residual>
bool single_product(const BaseSource& base, const Residual& residual, const ProductArgs& args, long tile_begin, long tile_end) {
  if (args.rows != 1 || (kWhole && args.x_residual.t != args.x_base.t)) return false;
  if (args.x_base.planes == 2) {
    single_tiles<2, kWhole>(base, residual, args, tile_begin, tile_end);
  } else if (base.is_small()) {
    single_tiles<1, kWhole>(base, residual, args, tile_begin, tile_end);
  } else {
    return false;
  }
  return true;
}

template <int Bits>
void product_of_width(const ProductArgs& args, long tile_begin, long tile_end) {
  const BaseSource base(args.base);
  const ResidualSource<Bits> residual(args.residual);
  if (args.use_residual && single_product<true>(base, residual, args, tile_begin, tile_end)) return;
  switch (args.rows) {
    case 1: return stream_tiles<1>(base, residual, args, tile_begin, tile_end);
    case 2: return stream_tiles<2>(base, residual, args, tile_begin, tile_end);
#if !defined(TWOFOLD_QUADS) || defined(__AVX512BW__)
    case 3: return stream_tiles<3>(base, residual, args, tile_begin, tile_end);
    case 4: return stream_tiles<4>(base, residual, args, tile_begin, tile_end);
#endif
    default: return strip_tiles(base, residual, args, tile_begin, tile_end);
  }
}

void product(const ProductArgs& args, long tile_begin, long tile_end) {
  if (!args.use_residual && args.rows == 1) {
    const ResidualSource<4> unread(args.residual);
    if (single_product<false>(BaseSource(args.base), unread, args, tile_begin, tile_end)) return;
  }
  switch (args.residual.bits) {
    case 4: return product_of_width<4>(args, tile_begin, tile_end);
    case 5: return product_of_width<5>(args, tile_begin, tile_end);
    case 6: return product_of_width<6>(args, tile_begin, tile_end);
    case 7: return product_of_width<7>(args, tile_begin, tile_end);
    default: return product_of_width<8>(args, tile_begin, tile_end);
  }
}

}  // namespace
}  // namespace twofold
