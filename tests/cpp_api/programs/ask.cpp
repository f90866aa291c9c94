// Does what its arguments say with the registry, and prints a line for each: the driver of
// test_registry.py.
#include <dlfcn.h>
#include <sys/wait.h>
#include <tensor_ops/backend/backends.h>
#include <tensor_ops/backend/decoder.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

using namespace tensor_ops::backend;

namespace {

BackendRegistry& registry() { return BackendRegistry::get_instance(); }

std::string described(const Backend* backend) {
  if (backend == nullptr) return "null";
  return backend->get_name() + " " + (backend->version().empty() ? "-" : backend->version()) +
         (backend->is_available() ? " available" : " unavailable");
}

void* opened(const std::string& path) {
  if (void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
  throw Error(dlerror());
}

tensor_ops_get_backend* entry_in(void* library) {
  void* const address = dlsym(library, "tensor_ops_cpp_backend");
  tensor_ops_get_backend* entry = nullptr;
  std::memcpy(&entry, &address, sizeof entry);
  return entry;
}

// Registers what the program closes afterwards, which must stay usable all the same.
std::string register_and_close(const std::string& path) {
  void* const library = opened(path);
  registry().register_backend(entry_in(library));
  dlclose(library);
  return "registered";
}

std::string available() {
  std::string names;
  for (const BackendType type : registry().get_available_backends())
    names += std::string(names.empty() ? "" : " ") + name_of(type);
  return names.empty() ? "none" : names;
}

// Many threads at once do all that there is to do; every one has to see the same backend.
std::string in_threads(const std::string& path) {
  tensor_ops_get_backend* const entry = entry_in(opened(path));
  std::atomic<int> ready{0};
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([&, i] {
      ++ready;
      while (ready < 8) std::this_thread::yield();
      for (int k = 0; k < 100; ++k) {
        registry().register_backend(entry);
        if (i == 0 && k % 10 == 0) registry().reload_config();
        const Backend* const backend = registry().get_backend("cpu");
        if (backend != registry().get_backend(BackendType::kCpp)) ++wrong;
        if (backend != registry().get_default_backend()) ++wrong;
        if (registry().get_backend("cuda") != nullptr) ++wrong;
        if (registry().get_available_backends().size() != 1) ++wrong;
      }
    });
  for (std::thread& thread : threads) thread.join();
  return std::to_string(wrong) + " wrong";
}

// The first of eight threads to ask loads or chooses; the others get the same.
std::string first_use_in_threads() {
  std::atomic<int> ready{0};
  std::vector<const Backend*> found(8);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < found.size(); ++i)
    threads.emplace_back([&, i] {
      ++ready;
      while (ready < 8) std::this_thread::yield();
      found[i] = i % 2 == 0 ? registry().get_default_backend() : registry().get_backend("cpp");
    });
  for (std::thread& thread : threads) thread.join();
  for (const Backend* backend : found)
    if (backend != found[0]) return "several";
  return described(found[0]);
}

std::string device_of(const Backend& backend) {
  const DeviceInfo device = backend.devices().at(0);
  return device.name + " " + std::to_string(device.device.kind) + ":" +
         std::to_string(device.device.index) + " units " + std::to_string(device.compute_units) +
         " memory " + std::to_string(device.memory);
}

std::string default_after_a_fork() {
  std::cout << described(get_default_backend()) << std::endl;
  const pid_t child = fork();
  if (child == 0) {
    for (int i = 0; i < 2; ++i) std::cout << described(get_default_backend()) << std::endl;
    _exit(0);
  }
  int status = 1;
  waitpid(child, &status, 0);
  return described(get_default_backend()) + " " + std::to_string(status);
}

void ask_in_handler(const std::string& message) {
  std::cout << "handler: " << message << '\n';
  std::cout << "in the handler: " << described(get_default_backend()) << ", "
            << described(registry().get_backend("cpp")) << ", " << available() << '\n';
  registry().set_warning_handler({});
}

// Gives a null pointer where a text is expected.
std::string null_given(const std::string& place) {
  constexpr const char* null = nullptr;
  const Backend& cpp = *registry().get_backend("cpp");
  float x = 0;
  const ConstArray array(&x, {1});
  if (place == "folder") Decoder(&cpp, null);
  if (place == "folder with a table") Decoder(cpp.abi(), null);
  if (place == "environment") registry().search_python_environment(null);
  if (place == "op") cpp.call(null, {array}, {});
  if (place == "has_op") cpp.has_op(null);
  if (place == "array") cpp.call("silu", {{null, array}}, {});
  if (place == "number") cpp.call("silu", {array}, {}, {{null, 1.0}});
  if (place == "choice") cpp.call("silu", {array}, {}, {{null, "none"}});
  return "nothing thrown";
}

std::string done(const std::string& command, const std::string& value) {
  if (command == "get") return described(registry().get_backend(value));
  if (command == "null") return described(registry().get_backend(static_cast<char*>(nullptr)));
  if (command == "null_given") return null_given(value);
  if (command == "open") return Decoder(registry().get_backend(value), "folder").info().name;
  if (command == "reason") return registry().unavailable_reason(value);
  if (command == "own_reason") return registry().get_backend(value)->unavailable_reason();
  if (command == "library") return registry().get_backend(value)->library();
  if (command == "available") return available();
  if (command == "default") return described(get_default_backend());
  if (command == "fork") return default_after_a_fork();
  if (command == "type") return name_of(registry().get_backend(value)->type());
  if (command == "device") return device_of(*registry().get_backend(value));
  if (command == "configuration") return registry().get_backend(value)->configuration();
  if (command == "threads") {
    const Backend& backend = *registry().get_backend("cpp");
    backend.set_num_threads(std::stoi(value));
    return std::to_string(backend.num_threads());
  }
  if (command == "register") return register_and_close(value);
  if (command == "in_threads") return in_threads(value);
  if (command == "first_use_in_threads") return first_use_in_threads();
  if (command == "search") return registry().search_python_environment(value), "searched";
  if (command == "reload") return registry().reload_config(), "reloaded";
  if (command == "setenv") {
    const std::size_t equals = value.find('=');
    setenv(value.substr(0, equals).c_str(), value.substr(equals + 1).c_str(), 1);
    return "set";
  }
  if (command == "handler") {
    if (value == "asks") registry().set_warning_handler(ask_in_handler);
    if (value == "throws")
      registry().set_warning_handler([](const std::string& text) { throw Error(text); });
    if (value == "prints")
      registry().set_warning_handler(
          [](const auto& text) { std::cout << "warns " << text << '\n'; });
    return "handler set";
  }
  return "unknown command " + command;
}

const char* type_of(const Error& error) {
  if (dynamic_cast<const ConfigError*>(&error) != nullptr) return "ConfigError";
  if (dynamic_cast<const ValueError*>(&error) != nullptr) return "ValueError";
  if (dynamic_cast<const TypeError*>(&error) != nullptr) return "TypeError";
  if (dynamic_cast<const UnavailableError*>(&error) != nullptr) return "UnavailableError";
  return "Error";
}

}  // namespace

// Called by a library of the tests while it is loaded.
extern "C" __attribute__((visibility("default"))) void asked_while_loading() {
  for (const char* name : {"cuda", "cpp"}) {
    try {
      const std::string found = described(registry().get_backend(name));
      std::cout << "while loading: " << name << ' ' << found << '\n';
    } catch (const Error& error) {
      std::cout << "while loading: " << error.what() << '\n';
    }
  }
}

int main(int count, char** arguments) {
  for (int i = 1; i < count; ++i) {
    const std::string argument = arguments[i];
    const std::size_t equals = argument.find('=');
    const bool has_value = equals != std::string::npos;
    try {
      const std::string text =
          done(argument.substr(0, equals), has_value ? argument.substr(equals + 1) : "");
      std::cout << text << '\n';
    } catch (const Error& error) {
      std::cout << type_of(error) << ": " << error.what() << '\n';
    }
  }
}
