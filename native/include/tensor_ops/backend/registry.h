// The registry: which backends there are, and which one runs.
#pragma once

#include <cstdint>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tensor_ops/abi.h"
#include "tensor_ops/backend/backend.h"
#include "tensor_ops/backend/detail/config.h"
#include "tensor_ops/backend/detail/environment.h"
#include "tensor_ops/backend/detail/library.h"
#include "tensor_ops/backend/detail/search.h"
#include "tensor_ops/backend/names.h"
#include "tensor_ops/backend/selection.h"

namespace tensor_ops::backend {

using WarningHandler = std::function<void(const std::string&)>;

// The backends of the process. Libraries are loaded when they are first asked for, and stay loaded.
//
// Any function may be called from any thread, and by what runs while a library is loaded: its own
// initialisers and the warning handler. For no lock is held while a library is loaded, a file is
// read or the handler runs; two threads may both load, and the first outcome stays. So no lock can
// be taken twice, and none while another is held.
class BackendRegistry {
 public:
  static BackendRegistry& get_instance() {
    // Never destroyed: threads and exit handlers may use it until the end.
    static auto* const registry = new BackendRegistry;
    return *registry;
  }
  BackendRegistry(const BackendRegistry&) = delete;
  BackendRegistry& operator=(const BackendRegistry&) = delete;

  // The backends that can run, in the order in which they are tried. Only those of the order that
  // is configured are loaded. Throws ConfigError where a setting is wrong.
  std::vector<BackendType> get_available_backends() {
    Decision decision = this->decision();
    auto names = decision.candidates;
    names.insert(names.end(), decision.priority.begin(), decision.priority.end());
    decision.candidates = detail::with_last_resort(names);
    std::set<BackendType> seen;
    std::vector<BackendType> found;
    for (const Step& step : walk(decision, false)) {
      const std::string name = detail::split(step.backend).first;
      const BackendType type = name == "cuda" ? BackendType::kCuda : BackendType::kCpp;
      if (!step.reason && seen.insert(type).second) found.push_back(type);
    }
    return found;
  }

  // A backend, available or not; null where there is no library that provides it, or it is not on
  // the kind of device that the name demands. unavailable_reason() says why. This only looks: it is
  // get_default_backend() that follows the configuration.
  Backend* get_backend(BackendType type) { return get_backend(std::string(name_of(type))); }
  // The same by a name, an alias ("cpu", "openmp", "numpy") or a name with a kind of device
  // ("cuda:gpu"). Throws ConfigError where nothing has that name, with the nearest one.
  Backend* get_backend(const std::string& name) {
    const auto [backend, kind] = detail::split(resolved(name));
    const auto entry = load(backend);
    if (entry->backend == nullptr) return nullptr;
    const bool is_on_kind = kind.empty() || !detail::reason_against(*entry, kind);
    return is_on_kind ? entry->backend.get() : nullptr;
  }
  Backend* get_backend(const char* name) { return get_backend(checked(name)); }

  // Why a backend cannot run, empty where it can.
  std::string unavailable_reason(BackendType type) {
    return unavailable_reason(std::string(name_of(type)));
  }
  std::string unavailable_reason(const std::string& name) {
    return reason_against(resolved(name)).value_or("");
  }
  std::string unavailable_reason(const char* name) { return unavailable_reason(checked(name)); }

  // The backend that the environment and backend.json choose, never null; it is found once.
  // Throws UnavailableError where the one that is forced cannot run, or none can, and ConfigError
  // where a setting is wrong. Warns once where it is not the one that is preferred.
  Backend* get_default_backend() {
    for (;;) {
      const Snapshot at = snapshot();
      if (at.chosen != nullptr) return at.chosen;
      const Decision decision = this->decision();
      const std::vector<Step> steps = walk(decision, true);
      const Step& last = steps.back();
      if (last.reason) throw UnavailableError(detail::nothing_runs(decision, steps));
      Backend* const backend = load(detail::split(last.backend).first)->backend.get();
      if (!choose(at, backend)) continue;
      try {
        const std::string warning = detail::fallback_warning(
            decision, steps,
            [this, &at](const std::string& name) {
              const auto found = load(detail::split(name).first);
              return found->is_broken() || (at.lost != nullptr && found->backend.get() == at.lost);
            },
            backend->get_name());
        if (!warning.empty()) warn(warning);
      } catch (...) {
        forget_choice(at);  // so that every call throws
        throw;
      }
      return backend;
    }
  }

  // The decision of the environment and backend.json.
  Decision decision() { return decide(levels()); }

  // Adds a backend that the program has linked or loaded itself, by the entry point, such as
  // tensor_ops_cpp_backend, or by the table that it returned. Adding one twice does nothing.
  // Throws ValueError where another library already provides it, or the table is none of this
  // version.
  void register_backend(tensor_ops_get_backend* entry) {
    if (entry == nullptr)
      throw ValueError("register_backend() got a null pointer; give tensor_ops_cpp_backend");
    const detail::Loaded loaded = detail::table_of(entry);
    if (loaded.table == nullptr)
      throw ValueError("register_backend() got an entry point that gives no table: " +
                       loaded.problem);
    register_backend(loaded.table);
  }
  void register_backend(const tensor_ops_backend* table) {
    if (table == nullptr)
      throw ValueError("register_backend() got a null pointer; give the table of a backend");
    const std::string problem = detail::problem_with(table);
    if (!problem.empty()) throw ValueError("register_backend() got a wrong table: " + problem);
    const std::string name = table->name;
    if (!detail::is_native(name))
      throw ValueError("register_backend() got a backend " + detail::in_quotes(name) +
                       "; expected " + detail::joined(detail::native_names(), " or "));
    detail::keep_loaded(table);
    auto entry = std::make_shared<Found>();
    entry->backend = std::make_unique<Backend>(name, "", table);
    const std::lock_guard<std::mutex> lock(mutex_);
    auto& place = entries_[name];
    if (place != nullptr && place->has_table()) {
      if (place->backend->abi() == table) return;
      throw ValueError("register_backend(): another library already provides the backend '" + name +
                       "'" + (place->backend->library().empty() ? "" : ": ") +
                       place->backend->library() + "; register before the first use");
    }
    if (place != nullptr) retired_.push_back(place);
    place = std::move(entry);
    look_again();
  }

  // Looks for libraries and etc/tensor-ops/backend.json in a Python environment too, as
  // sys.prefix names it. Backends that are already loaded stay as they are.
  void search_python_environment(const std::string& prefix) {
    if (!detail::is_absolute(prefix))
      throw ValueError("search_python_environment() got " + detail::in_quotes(prefix) +
                       "; give the whole path of an environment, which sys.prefix is in it");
    std::error_code error;
    if (!std::filesystem::is_directory(detail::path_of(prefix), error))
      throw ValueError("search_python_environment() got " + detail::in_quotes(prefix) +
                       ", which is not a folder; give what sys.prefix is in the environment");
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const std::string& each : environments_)
      if (each == prefix) return;
    environments_.push_back(prefix);
    look_again();
  }

  void search_python_environment(const char* prefix) {
    search_python_environment(detail::not_null(prefix, "search_python_environment(): prefix"));
  }

  // Reads the environment and backend.json again, and looks again for what was not available.
  void reload_config() {
    const std::lock_guard<std::mutex> lock(mutex_);
    look_again();
    said_.clear();
  }

  // The handler gets each warning, once; std::cerr does until this is called. Returns the one
  // before. An empty one is std::cerr again. Its exceptions leave get_default_backend().
  WarningHandler set_warning_handler(WarningHandler handler) {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::swap(handler_, handler);
    return handler;
  }

 private:
  // The result of a search does not change, and is never freed.
  using Found = detail::FoundBackend;

  // The choice that holds now, if there is one, and what it depends on.
  struct Snapshot {
    std::uint64_t generation;
    Backend* chosen;
    const Backend* lost;  // what the process that this one was forked from had chosen
    std::vector<std::string> environments;
  };

  BackendRegistry() = default;

  static std::string checked(const char* name) {
    if (name == nullptr) throw TypeError("a backend's name must be a string, got a null pointer");
    return name;
  }

  // The devices of the parent may not be usable in a forked child, which chooses for itself.
  Snapshot snapshot() {
    const std::lock_guard<std::mutex> lock(mutex_);
    const bool is_ours = detail::process_id() == chosen_by_;
    return {generation_, is_ours ? chosen_ : nullptr, is_ours ? nullptr : chosen_, environments_};
  }

  // Keeps a choice, unless what it depends on has changed or another thread was first.
  bool choose(const Snapshot& at, Backend* backend) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (generation_ != at.generation) return false;
    if (chosen_ != nullptr && chosen_by_ == detail::process_id()) return false;
    chosen_ = backend;
    chosen_by_ = detail::process_id();
    return true;
  }

  void forget_choice(const Snapshot& at) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (generation_ == at.generation) chosen_ = nullptr;
  }

  // Forgets what may have changed. The caller holds the lock.
  void look_again() {
    ++generation_;
    chosen_ = nullptr;
    levels_.reset();
    for (auto place = entries_.begin(); place != entries_.end();) {
      if (place->second->has_table()) {
        ++place;
        continue;
      }
      retired_.push_back(place->second);  // the program may hold pointers to it
      place = entries_.erase(place);
    }
  }

  // Searches for a backend once.
  std::shared_ptr<const Found> load(const std::string& name) {
    for (;;) {
      const Loading loading(*this, name);
      if (loading.known != nullptr) return loading.known;
      auto found = std::make_shared<Found>(detail::look_for(name, loading.environments));
      const std::lock_guard<std::mutex> lock(mutex_);
      const auto known = entries_.find(name);
      if (known != entries_.end()) return known->second;
      if (generation_ == loading.generation) return entries_[name] = std::move(found);
    }
  }

  // Marks for its lifetime that this thread loads a backend, if it is not known yet.
  struct Loading {
    Loading(BackendRegistry& owner, const std::string& name)
        : registry(owner), mark(std::this_thread::get_id(), name) {
      const std::lock_guard<std::mutex> lock(registry.mutex_);
      const auto entry = registry.entries_.find(name);
      if (entry != registry.entries_.end()) known = entry->second;
      if (known != nullptr) return;
      if (!registry.loading_.insert(mark).second)
        throw Error("backend '" + name +
                    "' cannot be used yet: its library is still being loaded, and what it does "
                    "then asks for it");
      generation = registry.generation_;
      environments = registry.environments_;
    }
    ~Loading() {
      if (known != nullptr) return;
      const std::lock_guard<std::mutex> lock(registry.mutex_);
      registry.loading_.erase(mark);
    }
    Loading(const Loading&) = delete;
    Loading& operator=(const Loading&) = delete;

    BackendRegistry& registry;
    const std::pair<std::thread::id, std::string> mark;
    std::shared_ptr<const Found> known;
    std::uint64_t generation = 0;
    std::vector<std::string> environments;
  };

  std::optional<std::string> reason_against(const std::string& name) {
    const auto [backend, kind] = detail::split(name);
    return detail::reason_against(*load(backend), kind);
  }

  std::vector<Step> walk(const Decision& decision, bool stop_at_first) {
    return backend::walk(
        decision, [this](const std::string& name) { return reason_against(name); },
        [this](const std::string& name) {
          return detail::kind_of(*load(detail::split(name).first));
        },
        stop_at_first);
  }

  // The native backends that are there, without loading them.
  detail::Names installed(const std::vector<std::string>& environments) {
    detail::Names names;
    for (const std::string& name : detail::native_names()) {
      bool is_loaded;
      {
        const std::lock_guard<std::mutex> lock(mutex_);
        const auto entry = entries_.find(name);
        is_loaded = entry != entries_.end() && entry->second->backend != nullptr;
      }
      if (is_loaded || !detail::library_in(detail::folders_for(name, environments), name).empty())
        names.insert(name);
    }
    return names;
  }

  std::string resolved(const std::string& name) {
    if (detail::is_known(name)) return name;  // without a look at the folders
    return detail::resolve(name, installed(snapshot().environments));
  }

  // The levels of the environment and backend.json, read once.
  std::vector<ConfigLevel> levels() {
    for (;;) {
      const Snapshot at = snapshot();
      {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (levels_) return *levels_;
      }
      const detail::Names names = installed(at.environments);
      auto found = detail::environment_levels(names, detail::variable);
      const detail::ConfigLocation file = detail::find_config(at.environments);
      if (file.path) found.push_back(detail::load_config(*file.path, at.environments, names));
      {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (generation_ != at.generation) continue;
        levels_ = found;
      }
      if (!file.warning.empty()) warn(file.warning);
      for (const std::string& warning : detail::unknown_in_order(found)) warn(warning);
      return found;
    }
  }

  // Hands a warning to the handler, unless it has had it.
  void warn(const std::string& message) {
    WarningHandler handler;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (!said_.insert(message).second) return;
      handler = handler_;
    }
    if (!handler) {
      std::cerr << "tensor_ops: warning: " + message + "\n";
      return;
    }
    try {
      handler(message);
    } catch (...) {
      const std::lock_guard<std::mutex> lock(mutex_);
      said_.erase(message);
      throw;
    }
  }

  std::mutex mutex_;  // of all that follows; held for no longer than it takes to look at it
  std::map<std::string, std::shared_ptr<const Found>> entries_;
  std::vector<std::shared_ptr<const Found>> retired_;
  std::set<std::pair<std::thread::id, std::string>> loading_;
  std::vector<std::string> environments_;
  std::uint64_t generation_ = 0;  // grows with what a choice depends on
  std::optional<std::vector<ConfigLevel>> levels_;
  Backend* chosen_ = nullptr;
  long chosen_by_ = 0;  // the process
  WarningHandler handler_;
  std::set<std::string> said_;
};

// Throws ConfigError where the configuration forces another backend than this one. Calls of ops are
// the program's own business; a model that is opened follows a force, as in Python.
inline void require_not_forced_away(const Backend& backend) {
  const std::string problem =
      detail::forced_elsewhere(BackendRegistry::get_instance().decision(), backend.get_name());
  if (!problem.empty()) throw ConfigError(problem);
}

// The backend that the environment and backend.json choose: see BackendRegistry.
inline Backend* get_default_backend() {
  return BackendRegistry::get_instance().get_default_backend();
}

}  // namespace tensor_ops::backend
