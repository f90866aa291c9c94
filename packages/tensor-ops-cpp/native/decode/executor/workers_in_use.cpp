#include "decode/executor/workers_in_use.h"

#include <algorithm>
#include <numeric>

namespace tensor_ops::decode {
namespace {

using std::chrono::milliseconds;

// Long enough for a scheduler to have given processors to some and to others.
constexpr milliseconds kJudged{40}, kTrial{20};
// The pause after a trial that failed, as a multiple of what the trial cost: all trials together
// cost a hundredth of the time.
constexpr int kPauses = 100;
constexpr milliseconds kShortestPause{100}, kLongestPause{10'000};
// A worker is losing if it had no processor for more than this part of the time.
constexpr int kLosingPart = 20;
// How many of the last steps the usual time is the mean of.
constexpr int kUsualSteps = 16;

}  // namespace

WorkersInUse::WorkersInUse(std::size_t most)
    : most_(most), settled_(most), count_(most), lost_(most) {}

std::size_t WorkersInUse::count(std::size_t tokens) const {
  if (held_ > 0) return held_;
  if (tokens >= kManyTokens) return most_;
  return has_usual(tokens) ? count_ : settled_;
}

void WorkersInUse::note(std::size_t tokens, Clock::time_point began, Clock::time_point ended,
                        const std::vector<Duration>& without_processor) {
  if (held_ > 0 || tokens >= kManyTokens) return;
  const Duration took = ended - began;
  Usual& usual = usual_[tokens];
  if (is_trial() && !has_usual(tokens)) {
    usual = {took, 1};
    return;
  }
  if (!is_trial()) {
    usual.steps = std::min(usual.steps + 1, kUsualSteps);
    usual.time += (took - usual.time) / usual.steps;
  }
  took_ += took;
  would_have_taken_ += usual.time;
  for (std::size_t i = 0; i < without_processor.size(); ++i) lost_[i] += without_processor[i];
  if (!is_trial()) {
    if (took_ >= kJudged) judge(ended);
  } else if (std::max(took_, would_have_taken_) >= kTrial) {
    // Where it is slower it ends early: it costs no more than this time and one step.
    end_trial(ended);
  }
}

// Fewer workers are tried only while one of those in use is losing, more of them always. Where both
// are possible they take turns.
void WorkersInUse::judge(Clock::time_point now) {
  const bool is_losing = num_losing() > 0, began_to_lose = is_losing && !was_losing_;
  was_losing_ = is_losing;
  if (!is_losing) fewer_by_ = 0;
  if (began_to_lose) {
    expect_other_times();
  } else if (now >= next_trial_) {
    const bool can_try_more = settled_ < most_;
    if (is_losing && settled_ > 1 && !(has_tried_fewer_ && can_try_more)) return try_fewer();
    if (can_try_more) return try_more();
  }
  // Half of what was judged counts again, so that what comes in bursts is not missed.
  took_ /= 2;
  would_have_taken_ /= 2;
  for (Duration& lost : lost_) lost /= 2;
}

std::size_t WorkersInUse::num_losing() const {
  const auto is_losing = [this](Duration lost) { return lost * kLosingPart > took_; };
  return static_cast<std::size_t>(std::count_if(lost_.begin(), lost_.end(), is_losing));
}

// The number of missing processors is between two bounds: the time that all workers lost, as a
// multiple of the time that passed, and the number of workers that are losing. The numbers between
// them are tried from the lower bound up, since leaving out few workers costs least if it is wrong.
// Only the right number may be faster at all: if too few are left out, some of the rest still keep
// the others waiting.
void WorkersInUse::try_fewer() {
  const std::size_t most = std::min(num_losing(), settled_ - 1);
  const Duration lost = std::accumulate(lost_.begin(), lost_.end(), Duration());
  const auto least = static_cast<std::size_t>((lost + took_ / 2) / took_);
  const std::size_t next = fewer_by_ < most ? fewer_by_ + (fewer_by_ + 2) / 3 : 0;
  fewer_by_ = std::min(std::max({least, next, std::size_t{1}}), most);
  begin_trial(settled_ - fewer_by_);
}

void WorkersInUse::try_more() {
  more_by_ = std::min(more_by_ > 1 ? more_by_ / 2 : (settled_ + 7) / 8, most_ - settled_);
  begin_trial(settled_ + more_by_);
}

void WorkersInUse::begin_trial(std::size_t count) {
  count_ = count;
  has_tried_fewer_ = count < settled_;
  forget_steps();
}

void WorkersInUse::end_trial(Clock::time_point now) {
  // Without others nothing speaks against the number of workers that the caller has asked for.
  const bool is_undisturbed = count_ > settled_ && num_losing() == 0;
  if (took_ < would_have_taken_ || is_undisturbed) {
    const auto change = std::chrono::duration<double>(took_) / would_have_taken_;
    for (Usual& usual : usual_)
      usual.time = std::chrono::duration_cast<Duration>(usual.time * change);
    expect_other_times();
    settled_ = count_;
    fewer_by_ = more_by_ = 0;
    next_trial_ = now;
  } else {
    count_ = settled_;
    next_trial_ = now + std::clamp<Duration>(kPauses * (took_ - would_have_taken_), kShortestPause,
                                             kLongestPause);
  }
  forget_steps();
}

void WorkersInUse::forget_steps() {
  took_ = would_have_taken_ = Duration();
  std::fill(lost_.begin(), lost_.end(), Duration());
}

// The next step of each number of tokens says alone what the usual time is, those after it with it.
void WorkersInUse::expect_other_times() {
  for (Usual& usual : usual_) usual.steps = 0;
}

}  // namespace tensor_ops::decode
