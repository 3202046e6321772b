// SPDX-License-Identifier: BSD-3-Clause
#include "gpu/dynamic_library.hpp"

#include <cerrno>
#include <utility>

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

namespace upcie::gpu {

Result<DynamicLibrary> DynamicLibrary::open(const std::string& name, const std::string& hint) {
    void* const handle = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
        const char* const words = ::dlerror();
        // The loader's words alone tell a file that is not there from one that is no library of this machine.
        const bool there = name.find('/') != std::string::npos && ::access(name.c_str(), F_OK) == 0;
        return fail(there ? ELIBBAD : ENOENT, "dlopen", name,
                    fmt::format("{}. {}", words != nullptr ? words : "the loader refused", hint));
    }
    return DynamicLibrary{handle, name};
}

DynamicLibrary::DynamicLibrary(DynamicLibrary&& other) noexcept
    : handle_{std::exchange(other.handle_, nullptr)}, asked_{other.asked_}, name_{std::move(other.name_)} {}

DynamicLibrary& DynamicLibrary::operator=(DynamicLibrary&& other) noexcept {
    std::swap(handle_, other.handle_);
    std::swap(asked_, other.asked_);
    std::swap(name_, other.name_);
    return *this;
}

DynamicLibrary::~DynamicLibrary() {
    if (handle_ != nullptr) {
        ::dlclose(handle_);
    }
}

void* DynamicLibrary::symbol(const char* name) const noexcept {
    return asked_ != nullptr ? ::dlsym(asked_, name) : nullptr;
}

} // namespace upcie::gpu
