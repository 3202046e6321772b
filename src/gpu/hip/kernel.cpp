// SPDX-License-Identifier: BSD-3-Clause
#include <cerrno>
#include <cstdlib>

#include "gpu/hip/driver.hpp"

namespace upcie::gpu::hip {

namespace {

/// The last major whose runtime has hipRTC in its own library.
constexpr int last_major_with_compiler = 6;

/// Where hipRTC may be, in the order of looking.
std::vector<std::string> compiler_places(const std::string& asked, const std::string& runtime, int major) {
    if (!asked.empty()) {
        return {asked};
    }
    if (const char* const named = std::getenv("UPCIE_HIPRTC_LIBRARY"); named != nullptr && *named != '\0') {
        return {named};
    }
    const std::string name = fmt::format("libhiprtc.so.{}", major);
    std::vector<std::string> places;
    if (const auto slash = runtime.rfind('/'); slash != std::string::npos) {
        places.push_back(runtime.substr(0, slash + 1) + name);
    }
    places.push_back(name);
    if (major <= last_major_with_compiler) {
        places.push_back(runtime);
    }
    return places;
}

} // namespace

Result<std::vector<char>> Hip::Driver::compile_reader() {
    std::string tried;
    for (const std::string& place : compiler_places(compiler_library, library.name(), major_of(version))) {
        auto opened = DynamicLibrary::open(place, "");
        if (!opened) {
            tried += opened.error().hint;
            continue;
        }
        Compiler compiler;
        if (!compiler.found_in(*opened)) {
            tried += fmt::format("{} has no hipRTC. ", place);
            continue;
        }
        opened->keep(); // it carries a compiler with handlers of its own at exit
        return compile(compiler, reading_kernel, identity.arch);
    }
    return fail(ENOSYS, "compile the reading kernel", identity.name,
                tried + "Install hipRTC of the runtime's version (ROCm's package hiprtc), or name its library in "
                        "UPCIE_HIPRTC_LIBRARY; read_by_copy() needs none, and shows less.");
}

Result<KernelFunction> Hip::Driver::reader() {
    const std::lock_guard lock{mutex};
    if (module == nullptr) {
        const auto code = compile_reader();
        if (!code) {
            return tl::unexpected{code.error()};
        }
        if (auto loaded = call(api.module_load, fmt::format("the reading kernel for {}", identity.arch),
                               "Is hipRTC of the same ROCm as the runtime? UPCIE_HIPRTC_LIBRARY names another.",
                               &module, static_cast<const void*>(code->data()));
            !loaded) {
            module = nullptr;
            return tl::unexpected{std::move(loaded.error())};
        }
    }
    KernelFunction function = nullptr;
    if (auto found =
            call(api.module_function, "the reading kernel", unexpected_by_hip, &function, module, reading_kernel_name);
        !found) {
        return tl::unexpected{std::move(found.error())};
    }
    return function;
}

Result<std::uint64_t> Hip::read_by_kernel(DevicePointer pointer) {
    Driver& driver = *driver_;
    const Api& api = driver.api;
    if (pointer.value() % 8 != 0) {
        return fail(EINVAL, "read by a kernel", Driver::at(pointer), "The address has to be a multiple of 8.");
    }
    return driver.on_device([&]() -> Result<std::uint64_t> {
        if (auto checked = driver.holds(pointer, ByteCount{8}); !checked) {
            return tl::unexpected{std::move(checked.error())};
        }
        auto function = driver.reader();
        if (!function) {
            return tl::unexpected{std::move(function.error())};
        }
        void* target = nullptr;
        if (auto made = driver.call(api.allocate, "8 bytes", allocation_refused, &target, std::size_t{8}); !made) {
            return tl::unexpected{std::move(made.error())};
        }
        void* source = Driver::raw(pointer);
        void* parameters[] = {&source, &target};
        constexpr const char* hint =
            "The kernel could not read there: the address has to be device memory or registered MMIO of this GPU.";
        auto done = driver.call(api.launch, Driver::at(pointer), hint, *function, 1U, 1U, 1U, 1U, 1U, 1U, 0U, Stream{},
                                static_cast<void**>(parameters), static_cast<void**>(nullptr));
        std::uint64_t value = 0;
        if (done) {
            done = driver.call(api.synchronize, Driver::at(pointer), hint);
        }
        if (done) {
            done = driver.call(api.copy_to_host, "what the kernel read", hint, static_cast<void*>(&value), target,
                               sizeof value);
        }
        static_cast<void>(api.free(target));
        if (!done) {
            return tl::unexpected{std::move(done.error())};
        }
        return value;
    });
}

Result<std::uint64_t> Hip::read_by_copy(DevicePointer pointer) {
    if (pointer.value() % 8 != 0) {
        return fail(EINVAL, "read by a copy", Driver::at(pointer), "The address has to be a multiple of 8.");
    }
    std::uint64_t value = 0;
    if (auto done = copy_to_host(&value, pointer, ByteCount{sizeof value}); !done) {
        return tl::unexpected{std::move(done.error())};
    }
    return value;
}

} // namespace upcie::gpu::hip
