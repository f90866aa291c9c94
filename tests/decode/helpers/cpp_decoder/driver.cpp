// Runs the commands of standard input on exported models, one a line, and prints a line for each:
// what it gives, or the exception that it throws. Sequences are named by their order of opening.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <map>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tensor_ops/backend/decoder.h"
#include "tensor_ops/backend/detail/library.h"

namespace {

using tensor_ops::backend::Decoder;
using tensor_ops::backend::DecoderInfo;
using tensor_ops::backend::Sequence;
using tensor_ops::backend::Token;

const tensor_ops_backend* backend;
std::unique_ptr<Decoder> decoder;
std::vector<std::unique_ptr<Sequence>> sequences;

template <class T>
std::vector<T> rest(std::istream& words) {
  std::vector<T> all;
  for (T each; words >> each;) all.push_back(each);
  return all;
}

template <class T>
T next(std::istream& words) {
  T value{};
  words >> value;
  return value;
}

Sequence& sequence(std::istream& words) { return *sequences.at(next<std::size_t>(words)); }

std::vector<const Sequence*> chosen(const std::vector<std::size_t>& indices) {
  std::vector<const Sequence*> found;
  for (const std::size_t index : indices) found.push_back(sequences.at(index).get());
  return found;
}

template <class T>
void print(const std::vector<T>& values) {
  for (const T& each : values) std::cout << each << ' ';
}

// The bits of each number.
void print_bits(const float* first, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    std::uint32_t bits;
    std::memcpy(&bits, first + i, sizeof bits);
    std::printf("%08x ", bits);
  }
  std::fflush(stdout);
}

void open(std::istream& words) {
  sequences.clear();
  decoder.reset();
  const auto folder = next<std::string>(words);
  const auto threads = next<int>(words);
  decoder = std::make_unique<Decoder>(
      backend, folder, tensor_ops::backend::DecoderOptions{threads, next<std::string>(words)});
}

void info(std::istream&) {
  const DecoderInfo& of = decoder->info();
  std::cout << of.name << ' ' << of.activations << ' ' << of.start_token << ' '
            << of.vocabulary_size << ' ' << of.logit_count << ' ' << of.context_length << ' '
            << of.max_sequences << ' ' << of.max_step_tokens << ' ' << of.page_size << ' '
            << of.page_count << ' ' << of.layer_count << ' ' << of.num_threads << ' '
            << (of.memory > 0) << ' ';
  print(of.end_tokens);
}

void print_rows(const std::vector<std::vector<Token>>& rows) {
  for (const std::vector<Token>& row : rows) {
    print(row);
    std::cout << "; ";
  }
}

void set_array(std::istream& words) {
  const tensor_ops::backend::StepArray array = decoder->step_array(next<std::string>(words));
  const auto values = rest<double>(words);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (array.type == TENSOR_OPS_STEP_FLOAT32)
      array.as<float>()[i] = static_cast<float>(values[i]);
    else
      array.as<std::int32_t>()[i] = static_cast<std::int32_t>(values[i]);
  }
  print(array.shape);
}

void print_array(std::istream& words) {
  const tensor_ops::backend::StepArray array = decoder->step_array(next<std::string>(words));
  const auto count = next<std::size_t>(words);
  if (array.type == TENSOR_OPS_STEP_FLOAT32)
    print_bits(array.as<float>(), count);
  else
    print(std::vector<Token>(array.as<Token>(), array.as<Token>() + count));
}

// A number, which may be nan or inf.
double number(std::istream& words) {
  return std::strtod(next<std::string>(words).c_str(), nullptr);
}

void set_sampling(std::istream& words) {
  Sequence& of = sequence(words);
  tensor_ops::backend::Sampling sampling;
  sampling.temperature = number(words);
  words >> sampling.top_k;
  sampling.top_p = number(words);
  sampling.min_p = number(words);
  words >> sampling.seed;
  of.set_sampling(sampling);
}

const std::map<std::string, void (*)(std::istream&)> commands{
    {"open", open},
    {"info", info},
    {"sequence",
     [](std::istream&) {
       sequences.push_back(std::make_unique<Sequence>(decoder->open_sequence()));
     }},
    {"close", [](std::istream& words) { sequences.at(next<std::size_t>(words)).reset(); }},
    {"append",
     [](std::istream& words) {
       Sequence& to = sequence(words);
       to.append(rest<Token>(words));
     }},
    {"truncate",
     [](std::istream& words) {
       Sequence& of = sequence(words);
       of.truncate(next<std::int64_t>(words));
     }},
    {"sampling", set_sampling},
    {"run", [](std::istream& words) { decoder->run(chosen(rest<std::size_t>(words))); }},
    {"logits",
     [](std::istream& words) {
       const std::vector<float> found = sequence(words).logits();
       print_bits(found.data(), found.size());
     }},
    // max_tokens, then sequences.
    {"generate",
     [](std::istream& words) {
       const auto most = next<int>(words);
       print_rows(decoder->generate(chosen(rest<std::size_t>(words)), most));
     }},
    // max_tokens, a sequence, then end tokens instead of the model's.
    {"generate_until",
     [](std::istream& words) {
       const auto most = next<int>(words);
       Sequence& of = sequence(words);
       print(of.generate(most, rest<Token>(words)));
     }},
    {"set", set_array},
    {"array", print_array},
    {"step",
     [](std::istream& words) {
       const auto tokens = next<int>(words);
       decoder->run_step(tokens, next<int>(words));
     }},
    // max_tokens, then tokens: as many threads as there are tokens continue a sequence of one each.
    {"threads",
     [](std::istream& words) {
       const auto most = next<int>(words);
       const auto tokens = rest<Token>(words);
       std::vector<std::vector<Token>> found(tokens.size());
       std::vector<std::thread> threads;
       for (std::size_t i = 0; i < tokens.size(); ++i)
         threads.emplace_back([&, i] {
           Sequence mine = decoder->open_sequence();
           mine.append({tokens[i]});
           for (int j = 0; j < most; ++j) found[i].push_back(mine.generate(1)[0]);
         });
       for (std::thread& each : threads) each.join();
       print_rows(found);
     }},
    // A null pointer where an array's name is expected.
    {"null_array", [](std::istream&) { decoder->step_array(static_cast<const char*>(nullptr)); }},
    {"null_output",
     [](std::istream&) { decoder->run_steps(1, 1, static_cast<const char*>(nullptr)); }},
    // num_tokens, num_steps, output, then an end token for each token.
    {"steps",
     [](std::istream& words) {
       const auto tokens = next<int>(words), steps = next<int>(words);
       const auto output = next<std::string>(words);
       std::vector<std::vector<Token>> ends;
       for (const Token each : rest<Token>(words)) ends.push_back({each});
       print(decoder->run_steps(tokens, steps, output, ends));
     }},
    // max_seconds, then the same without end tokens.
    {"steps_within",
     [](std::istream& words) {
       const auto seconds = next<double>(words);
       const auto tokens = next<int>(words), steps = next<int>(words);
       print(decoder->run_steps(tokens, steps, next<std::string>(words), {}, seconds));
     }},
};

}  // namespace

int main(int, char** arguments) {
  std::string problem;
  tensor_ops_get_backend* const entry =
      tensor_ops::backend::detail::entry_of(arguments[1], arguments[2], problem);
  if (!entry || entry(TENSOR_OPS_ABI_VERSION, &backend, nullptr) != TENSOR_OPS_OK) {
    std::cerr << arguments[1] << ": is no library of the backend\n";
    return 1;
  }
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    const auto command = next<std::string>(words);
    try {
      if (!decoder && command != "open") throw std::runtime_error("no model is open");
      commands.at(command)(words);
    } catch (const tensor_ops::backend::ValueError& error) {
      std::cout << "ValueError: " << error.what();
    } catch (const tensor_ops::backend::MemoryError& error) {
      std::cout << "MemoryError: " << error.what();
    } catch (const std::exception& error) {
      std::cout << "error: " << error.what();
    }
    std::cout << std::endl;
  }
}
