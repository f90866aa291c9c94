#include "binding/decode/ranks.h"

#include <string>
#include <vector>

#include "binding/decode/executable.h"
#include "binding/python/arrays.h"
#include "declaration/errors.h"
#include "decode/ranks/callback_exchange.h"
#include "decode/ranks/exchange_sizes.h"
#include "decode/ranks/window_exchange.h"

namespace nb = nanobind;

namespace tensor_ops {
namespace {

// Keeps an object for C++, which lets go of it without the GIL.
std::shared_ptr<nb::object> kept(nb::object object) {
  return {new nb::object(std::move(object)), [](nb::object* last) {
            const AcquiredGil acquired;
            delete last;
          }};
}

// A RankGroup, whose methods an executor calls without the GIL.
class PythonCalls final : public decode::RankCalls {
 public:
  explicit PythonCalls(const nb::object& ranks) : ranks_(kept(ranks)) {}

  void while_waiting(double seconds, const std::vector<std::size_t>& ranks) override {
    call_back([&] {
      if (PyErr_CheckSignals() != 0) throw nb::python_error();
      ranks_->attr("while_waiting")(seconds, nb::tuple(nb::cast(ranks)));
    });
  }

  void exchange(const std::shared_ptr<float>& memory, float* sent, float* received,
                std::size_t count) override {
    call_back([&] {
      const nb::capsule owner = owner_of(memory);
      const auto over = [&](const Shape& shape, float* values) {
        return object_of(array_over(NPY_FLOAT32, shape, values, Owned::borrow(owner.ptr())));
      };
      const auto ranks = nb::cast<std::size_t>(ranks_->attr("world_size"));
      ranks_->attr("exchange")(over({count}, sent), over({ranks, count}, received));
    });
  }

  [[noreturn]] void fail(const std::string& message, std::size_t rank) override {
    call_back([&] { ranks_->attr("give_up")(message, rank); });
    throw Error(message);  // which give_up() should have done
  }

 private:
  const std::shared_ptr<nb::object> ranks_;
};

// An exchange with the calls that it makes.
template <class Of>
class WithCalls {
 public:
  template <class... Arguments>
  static std::shared_ptr<decode::Exchange> made(const nb::object& ranks,
                                                const Arguments&... arguments) {
    const auto both = std::make_shared<WithCalls>(ranks, arguments...);
    return {both, &both->exchange_};
  }
  template <class... Arguments>
  explicit WithCalls(const nb::object& ranks, const Arguments&... arguments)
      : calls_(ranks), exchange_(arguments..., calls_) {}

 private:
  PythonCalls calls_;
  Of exchange_;
};

std::size_t attribute(const char* function, const nb::object& ranks, const char* name) {
  const nb::object value = nb::getattr(ranks, name, nb::none());
  int overflow = 0;
  const long long number =
      PyLong_Check(value.ptr()) ? PyLong_AsLongLongAndOverflow(value.ptr(), &overflow) : -1;
  if (number < 0)
    throw TypeError(text(function, ": ranks must be a RankGroup or None, got ",
                         type_name(ranks.ptr()), ", which has no int '", name, "' from 0 on"));
  return static_cast<std::size_t>(number);
}

// The memory of the array that window() has returned, which it keeps.
std::shared_ptr<unsigned char> window_memory(const nb::object& window, std::size_t bytes) {
  const auto refuse = [&](const std::string& given) {
    throw TypeError(text("compile_program: ranks.window(", bytes, ") must return None or ", bytes,
                         " writable bytes at a multiple of 64, as a vector of uint8, got ", given));
  };
  if (!PyArray_Check(window.ptr())) refuse(type_name(window.ptr()));
  auto* const array = reinterpret_cast<PyArrayObject*>(window.ptr());
  auto* const first = static_cast<unsigned char*>(PyArray_DATA(array));
  if (PyArray_TYPE(array) != NPY_UINT8 || PyArray_NDIM(array) != 1 || !PyArray_ISCARRAY(array))
    refuse("an array of " + dtype_attribute_text(window.ptr()));
  if (static_cast<std::size_t>(PyArray_DIM(array, 0)) < bytes)
    refuse(text(PyArray_DIM(array, 0), " bytes"));
  if (reinterpret_cast<std::uintptr_t>(first) % 64 != 0) refuse("memory that begins elsewhere");
  return {kept(window), first};
}

}  // namespace

GivenRanks::GivenRanks(const char* function, const nb::object& ranks) {
  if (ranks.is_none()) return;
  rank_ = attribute(function, ranks, "rank");
  world_size_ = attribute(function, ranks, "world_size");
  for (const char* name : {"exchange", "window", "while_waiting", "give_up"})
    if (!nb::hasattr(ranks, name) || !PyCallable_Check(nb::getattr(ranks, name).ptr()))
      throw TypeError(text(function, ": ranks must be a RankGroup or None, got ",
                           type_name(ranks.ptr()), ", which has no method '", name, "'"));
  if (rank_ >= world_size_)
    throw ValueError(text(function, ": ranks.rank must be below ranks.world_size, got ", rank_,
                          " of ", world_size_));
  ranks_ = ranks;
}

std::size_t GivenRanks::rank_here() const {
  return world_size_ == 1 ? 0 : attribute("compile_program", ranks_, "rank_here");
}

std::shared_ptr<decode::Exchange> GivenRanks::exchange(const decode::Program& program,
                                                       std::size_t most_rows) const {
  decode::check_ranks(program, rank_, world_size_);
  const std::size_t most =
      world_size_ == 1 ? 0 : decode::most_sent(program, world_size_, most_rows);
  if (most == 0) return nullptr;
  const std::size_t bytes = decode::WindowExchange::bytes(world_size_, most);
  const nb::object window = ranks_.attr("window")(bytes);
  if (window.is_none())
    return WithCalls<decode::CallbackExchange>::made(ranks_, rank_, world_size_, most);
  return WithCalls<decode::WindowExchange>::made(ranks_, rank_, world_size_, most,
                                                 window_memory(window, bytes));
}

}  // namespace tensor_ops
