// Makes the calls of a file by the C interface of a library, in one thread or in several at the
// same time, and writes what comes of them to another file: the driver of test_ops.py, whose
// `call_files.py` says what is in the files.
#include <tensor_ops/backend/detail/library.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

namespace {

[[noreturn]] void fail(const std::string& what) {
  std::fprintf(stderr, "run_calls: %s\n", what.c_str());
  std::exit(1);
}

// The bytes of a file, from the first on.
class Reader {
 public:
  explicit Reader(std::vector<char> bytes) : bytes_(std::move(bytes)) {}

  bool is_at_end() const { return at_ == bytes_.size(); }

  char* bytes(std::size_t count) {
    if (count > bytes_.size() - at_) fail("the file of the calls is too short");
    char* const found = bytes_.data() + at_;
    at_ += count;
    return found;
  }
  template <class T>
  T number() {
    T value;
    std::memcpy(&value, bytes(sizeof value), sizeof value);
    return value;
  }
  template <class T>
  std::vector<T> numbers(std::size_t count) {
    std::vector<T> found(count);
    for (T& each : found) each = number<T>();
    return found;
  }

 private:
  std::vector<char> bytes_;
  std::size_t at_ = 0;
};

struct Memory {
  std::vector<char> bytes;
  std::vector<std::int64_t> shape, strides;
  std::int64_t offset = 0;
  std::int32_t dtype = TENSOR_OPS_NO_ARRAY;

  tensor_ops_array view() {
    tensor_ops_array found{};
    found.dtype = dtype;
    if (dtype == TENSOR_OPS_NO_ARRAY) return found;
    found.data = bytes.data() + offset;
    found.dims = static_cast<std::int32_t>(shape.size());
    found.shape = shape.data();
    found.strides = strides.data();
    found.device_kind = TENSOR_OPS_CPU;
    return found;
  }
};

struct Call {
  std::string op;
  std::int32_t num_threads = 0, choice = 0;
  std::vector<double> scalars;
  std::vector<Memory> inputs, outputs;
};

Memory read_memory(Reader& from) {
  Memory made;
  made.dtype = from.number<std::int32_t>();
  const auto dims = static_cast<std::size_t>(from.number<std::int32_t>());
  made.offset = from.number<std::int64_t>();
  made.shape = from.numbers<std::int64_t>(dims);
  made.strides = from.numbers<std::int64_t>(dims);
  const auto size = static_cast<std::size_t>(from.number<std::int64_t>());
  const char* const first = from.bytes(size);
  made.bytes.assign(first, first + size);
  return made;
}

std::vector<Memory> read_all_memory(Reader& from) {
  std::vector<Memory> made(static_cast<std::size_t>(from.number<std::int32_t>()));
  for (Memory& each : made) each = read_memory(from);
  return made;
}

std::vector<Call> read_calls(const char* path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) fail("the file of the calls cannot be opened");
  Reader from(std::vector<char>(std::istreambuf_iterator<char>(file), {}));
  std::vector<Call> calls;
  while (!from.is_at_end()) {
    Call& call = calls.emplace_back();
    const auto length = static_cast<std::size_t>(from.number<std::int32_t>());
    call.op.assign(from.bytes(length), length);
    call.num_threads = from.number<std::int32_t>();
    call.choice = from.number<std::int32_t>();
    call.scalars = from.numbers<double>(static_cast<std::size_t>(from.number<std::int32_t>()));
    call.inputs = read_all_memory(from);
    call.outputs = read_all_memory(from);
  }
  return calls;
}

std::vector<tensor_ops_array> views(std::vector<Memory>& all) {
  std::vector<tensor_ops_array> found;
  for (Memory& each : all) found.push_back(each.view());
  return found;
}

// The outputs of all calls, one after the other.
std::vector<char> results_of(const tensor_ops_backend& backend, std::vector<Call> calls) {
  std::vector<char> results;
  for (Call& call : calls) {
    const tensor_ops_op* op = nullptr;
    for (int i = 0; i < backend.op_count; ++i)
      if (call.op == backend.ops[i]->name) op = backend.ops[i];
    const auto inputs = views(call.inputs), outputs = views(call.outputs);
    tensor_ops_call made{};
    made.size = sizeof made;
    made.inputs = inputs.data();
    made.outputs = outputs.data();
    made.scalars = call.scalars.data();
    made.input_count = static_cast<std::int32_t>(inputs.size());
    made.output_count = static_cast<std::int32_t>(outputs.size());
    made.scalar_count = static_cast<std::int32_t>(call.scalars.size());
    made.choice = call.choice;
    made.num_threads = call.num_threads;
    tensor_ops_error error{};
    if (backend.call(op, &made, &error) != TENSOR_OPS_OK) fail(call.op + ": " + error.message);
    for (const Memory& each : call.outputs)
      results.insert(results.end(), each.bytes.begin(), each.bytes.end());
  }
  return results;
}

}  // namespace

// LIBRARY ENTRY CALLS RESULTS [THREADS]
int main(int count, char** words) {
  if (count < 5) return 2;
  std::string problem;
  tensor_ops_get_backend* const entry =
      tensor_ops::backend::detail::entry_of(words[1], words[2], problem);
  if (entry == nullptr) fail(problem);
  const auto loaded = tensor_ops::backend::detail::table_of(entry);
  if (loaded.table == nullptr) fail(loaded.problem);
  if (const char* const reason = loaded.table->unavailable_reason()) fail(reason);
  // What levels were compiled, and how many threads calls may use.
  std::printf("%s\n", loaded.table->configuration);
  const std::vector<Call> calls = read_calls(words[3]);
  std::vector<std::vector<char>> results(count > 5 ? std::strtoul(words[5], nullptr, 10) : 1);
  std::vector<std::thread> threads;
  for (std::vector<char>& each : results)
    threads.emplace_back([&] { each = results_of(*loaded.table, calls); });
  for (std::thread& each : threads) each.join();
  for (const std::vector<char>& each : results)
    if (each != results[0]) fail("threads got different results");
  std::ofstream file(words[4], std::ios::binary);
  file.write(results[0].data(), static_cast<std::streamsize>(results[0].size()));
  file.close();
  if (!file) fail("the results cannot be written");
  std::printf("%zu calls\n", calls.size());
}
