#include <iostream>
#include <tensor_ops/backend/backends.h>

using namespace tensor_ops::backend;

int main() {
// Get available backends
auto& registry = BackendRegistry::get_instance();
auto available = registry.get_available_backends();

for (auto type : available) {
    auto* backend = registry.get_backend(type);
    std::cout << "Backend: " << backend->get_name() << std::endl;
}

// Get specific backend
auto* cuda_backend = registry.get_backend("cuda");
if (cuda_backend && cuda_backend->is_available()) {
    std::cout << "CUDA is available" << std::endl;
}

// Get default backend
auto* default_backend = get_default_backend();

std::cout << "The default is " << default_backend->get_name() << std::endl;
}
