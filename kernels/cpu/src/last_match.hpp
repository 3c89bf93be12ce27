// Where the last tokens of a text stood before; kernels/naive/last_match.py defines it.
#pragma once

#include <cstdint>

namespace twofold {

struct Match {
  long length, next;
};

// The longest run of at most `most` tokens that ends the text and also ends earlier in it, the latest of the longest ones;
// `next` is the position behind the earlier run. Runs may overlap. {0, 0} where the last token stood nowhere.
inline Match last_match(const std::int32_t* tokens, long n, long most) {
  Match best{0, 0};
  for (long end = n - 1; end > 0 && best.length < most; --end) {
    if (tokens[end - 1] != tokens[n - 1]) continue;
    // a run that is to beat the best one holds its whole length, which its first token is quickest to deny
    if (best.length >= end || tokens[end - 1 - best.length] != tokens[n - 1 - best.length]) continue;
    long length = 1;
    while (length < most && length < end && tokens[end - 1 - length] == tokens[n - 1 - length]) ++length;
    if (length > best.length) best = {length, end};
  }
  return best;
}

}  // namespace twofold
