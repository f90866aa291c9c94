// A token is chosen of a row of logits as the node `sample` says, within the scratch for it.
#include "decode/serving/draw.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "decode/program/pieces.h"
#include "require.h"

namespace {

using namespace tensor_ops::decode;

constexpr float kInfinity = INFINITY;

void check_argmax(const std::vector<float>& x, std::int32_t expected) {
  const std::int32_t found = argmax(x.data(), x.size());
  require(found == expected, "argmax is ", found, ", not ", expected);
}

// One token, in slot 0, with two edits.
struct OneToken {
  std::int32_t slot = 0, position = 5, top_k = 0, num_edits = 0;
  std::int32_t edited_tokens[2] = {3, 0};
  float edit_biases[2] = {-kInfinity, 1}, edit_penalties[2] = {1, 2};
  float temperature = 0, top_p = 1, min_p = 0;
  std::uint64_t seed = 7;
  Step step{};

  OneToken() {
    step.slots = &slot;
    step.positions = &position;
    step.top_k = &top_k;
    step.num_edits = &num_edits;
    step.edited_tokens = edited_tokens;
    step.edit_biases = edit_biases;
    step.edit_penalties = edit_penalties;
    step.edits_per_request = 2;
    step.temperature = &temperature;
    step.top_p = &top_p;
    step.min_p = &min_p;
    step.seed = &seed;
  }

  // The memory behind the scratch stays as it is.
  std::int32_t sampled(const std::vector<float>& x) const {
    const std::size_t bytes = draw_scratch(x.size());
    struct alignas(64) Line {
      unsigned char bytes[64];
    };
    std::vector<Line> lines(bytes / 64 + 1, Line{{1}});
    auto* const scratch = reinterpret_cast<unsigned char*>(lines.data());
    const std::int32_t token = sample(step, x.data(), x.size(), 0, scratch);
    require(bytes % 64 == 0 && lines.back().bytes[0] == 1, "the scratch is too small");
    return token;
  }
};

void check_sample(const OneToken& token, const std::vector<float>& x, std::int32_t expected) {
  const std::int32_t found = token.sampled(x);
  require(found == expected, "the token is ", found, ", not ", expected);
}

}  // namespace

int main() {
  check_argmax({1, 3, 2, 3}, 1);
  check_argmax({-0.0f, 0.0f}, 0);
  check_argmax({-kInfinity, -3, -kInfinity}, 1);
  check_argmax({-kInfinity, -kInfinity}, -1);
  check_argmax({1, kInfinity, NAN}, -1);
  check_argmax({NAN}, -1);
  check_argmax({kInfinity, 1, kInfinity}, 0);

  OneToken token;
  const std::vector<float> x{2, -1, 2.5f, 9, 1};
  check_sample(token, x, 3);
  token.num_edits = 1;  // 3 is ruled out
  check_sample(token, x, 2);
  token.num_edits = 2;  // and that of 0 becomes half of one more
  check_sample(token, {3, 0, 2.5f, 9, 1}, 2);
  check_sample(token, {4, 0, 2.5f, 9, 1}, 0);  // equal to the next
  check_sample(token, {NAN, 0, 0, 0, 0}, -1);

  token.temperature = 0.5f;
  std::vector<int> drawn(5);
  for (token.position = 0; token.position < 4000; ++token.position) ++drawn[token.sampled(x)];
  require(drawn[3] == 0, "a token was drawn that is ruled out");
  require(drawn[2] > drawn[0] && drawn[0] > drawn[4] && drawn[4] > drawn[1] && drawn[1] > 0,
          "unlikelier tokens are drawn as often");
  token.top_k = 1;
  check_sample(token, x, 2);
  check_sample(token, {-kInfinity, -kInfinity, -kInfinity, 1, -kInfinity}, -1);

  require(draw_scratch(~std::size_t{0} / 8) == Pieces::kTooLarge, "a size overflows");
}
