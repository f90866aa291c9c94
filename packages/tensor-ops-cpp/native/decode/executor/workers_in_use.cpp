#include "decode/executor/workers_in_use.h"

#include <algorithm>

namespace tensor_ops::decode {

void WorkersInUse::note(Duration step, Duration without_processor) {
  ran_ += step;
  lost_ += without_processor;
  unchanged_ += step;
  if (ran_ < kJudged) return;
  // All workers waited at their meetings for the time that one worker lost. With fewer workers a
  // step takes longer, but by no more than the share of work of the workers that are left out.
  const bool is_too_many = lost_ * (count_ + 1) > ran_ * change();
  if (count_ > 1 && is_too_many) {
    pause_ = unchanged_ < pause_ ? std::min<Duration>(2 * pause_, kLongestPause) : kShortestPause;
    set(count_ - change());
  } else if (count_ < most_ && unchanged_ >= pause_) {
    set(std::min(count_ + change(), most_));
  }
  ran_ = lost_ = Duration();
}

void WorkersInUse::set(std::size_t count) {
  count_ = count;
  unchanged_ = Duration();
}

}  // namespace tensor_ops::decode
