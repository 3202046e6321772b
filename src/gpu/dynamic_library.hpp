// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include <upcie/result.hpp>

namespace upcie::gpu {

/// A shared library opened at run time. Move-only; closed with the object, unless keep() was called. Threads: any.
class DynamicLibrary {
  public:
    /// Error: ENOENT, with the loader's words and what would help.
    [[nodiscard]] static Result<DynamicLibrary> open(const std::string& name, const std::string& hint);
    DynamicLibrary(DynamicLibrary&& other) noexcept;
    DynamicLibrary& operator=(DynamicLibrary&& other) noexcept;
    ~DynamicLibrary();

    /// Null when it has no such symbol.
    [[nodiscard]] void* symbol(const char* name) const noexcept;
    [[nodiscard]] const std::string& name() const noexcept { return name_; }
    /// Leaves the library in the process: a GPU runtime has threads and exit handlers that outlive its last user.
    void keep() noexcept { handle_ = nullptr; }

  private:
    DynamicLibrary(void* handle, std::string name) : handle_{handle}, asked_{handle}, name_{std::move(name)} {}
    void* handle_ = nullptr; ///< to be closed
    void* asked_ = nullptr;  ///< for symbols
    std::string name_;
};

} // namespace upcie::gpu
