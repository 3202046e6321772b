// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cerrno>

#include "gpu/cuda/driver.hpp"
#include "gpu/cuda/kernels.hpp"

namespace upcie::gpu::cuda {

namespace {

// Refusals of a program that was compiled for other GPUs, or by a newer nvcc than the driver knows.
bool is_for_others(const Error& error) {
    return error.domain == ErrorDomain::vendor &&
           (error.code == no_binary || error.code == invalid_ptx || error.code == unsupported_ptx);
}

} // namespace

Result<void> Cuda::Driver::load_kernels() {
    if (module != nullptr) {
        return {};
    }
    const auto load = [this](const std::string& what, const unsigned char* image) {
        auto loaded = call(api.module_load, what, "The GPU has to be of compute capability 7.0 or newer (Volta).",
                           &module, static_cast<const void*>(image));
        if (loaded) {
            module_is = what;
        } else {
            module = nullptr;
        }
        return loaded;
    };
    const std::string by_nvcc = fmt::format("kernels built by nvcc {}", nvcc_version);
    const bool built = *nvcc_version != '\0' && !shipped_kernels;
    if (built) {
        auto loaded = load(by_nvcc, kernels_by_nvcc);
        if (loaded || !is_for_others(loaded.error())) {
            return loaded;
        }
    }
    auto loaded = load("kernels in PTX 6.4", kernels_ptx);
    if (loaded && built) {
        module_is += fmt::format(", since this driver or GPU does not take {}", by_nvcc);
    }
    return loaded;
}

Result<KernelFunction> Cuda::Driver::kernel(const char* name) {
    const std::lock_guard lock{mutex};
    if (auto loaded = load_kernels(); !loaded) {
        return tl::unexpected{std::move(loaded.error())};
    }
    KernelFunction function = nullptr;
    if (auto found =
            call(api.module_function, name,
                 "The driver compiled another program than it was given: try another driver.", &function, module, name);
        !found) {
        return tl::unexpected{std::move(found.error())};
    }
    return function;
}

Result<std::uint64_t> Cuda::Driver::run_kernel(const char* name, unsigned blocks, unsigned threads,
                                               DevicePointer source, std::uint64_t count, const std::string& subject,
                                               const std::string& hint) {
    auto function = kernel(name);
    if (!function) {
        return tl::unexpected{std::move(function.error())};
    }
    DeviceAddress target = 0;
    if (auto made = call(api.allocate, "8 bytes", "The GPU has not even 8 bytes left: free some of its memory.",
                         &target, std::size_t{8});
        !made) {
        return tl::unexpected{std::move(made.error())};
    }
    std::uint64_t value = 0;
    auto done = call(api.copy_to_device, "8 bytes", unexpected, target, static_cast<const void*>(&value), sizeof value);
    if (done) {
        DeviceAddress from = source.value();
        void* parameters[] = {&from, &count, &target};
        done = call(api.launch, subject, hint, *function, blocks, 1U, 1U, threads, 1U, 1U, 0U, Stream{},
                    static_cast<void**>(parameters), static_cast<void**>(nullptr));
    }
    if (done) {
        done = call(api.synchronize, subject, hint);
    }
    if (done) {
        done = call(api.copy_to_host, "what the kernel left", hint, static_cast<void*>(&value), target, sizeof value);
    }
    static_cast<void>(api.free(target));
    if (!done) {
        return tl::unexpected{std::move(done.error())};
    }
    return value;
}

Result<std::uint64_t> Cuda::read_by_kernel(DevicePointer pointer) {
    Driver& driver = *driver_;
    if (pointer.value() % 8 != 0) {
        return fail(EINVAL, "read by a kernel", Driver::at(pointer), "The address has to be a multiple of 8.");
    }
    return driver.in_context([&] {
        return driver.run_kernel(
            "upcie_read_dwords", 1, 1, pointer, 0, Driver::at(pointer),
            "The kernel could not read there: the address has to be device memory or registered MMIO. After such a "
            "fault the context is lost, and with it all memory of the process on this GPU.");
    });
}

Result<std::uint64_t> Cuda::checksum(DevicePointer start, ByteCount length) {
    Driver& driver = *driver_;
    const std::string subject = fmt::format("{} bytes at {}", length.value(), Driver::at(start));
    if (start.value() % 8 != 0 || length.value() % 8 != 0) {
        return fail(EINVAL, "checksum", subject, "Start and length have to be multiples of 8.");
    }
    constexpr unsigned threads = 256;
    constexpr std::uint64_t most_blocks = 512;
    const std::uint64_t words = length.value() / 8;
    const auto blocks =
        static_cast<unsigned>(std::clamp<std::uint64_t>((words + threads - 1) / threads, 1, most_blocks));
    // A kernel that reads outside of memory costs the process its context: where an allocation ends, the driver says.
    for (std::uint64_t done = 0; done < length.value();) {
        const auto found = allocation_of(start + ByteCount{done});
        if (!found) {
            return fail(EFAULT, "checksum", subject, "The range has to lie in live memory of this GPU.");
        }
        done = found->base.value() + found->size.value() - start.value();
    }
    return driver.in_context([&] {
        return driver.run_kernel("upcie_checksum", blocks, threads, start, words, subject,
                                 "The kernel could not read all of it.");
    });
}

Result<std::string> Cuda::kernels() {
    Driver& driver = *driver_;
    return driver.in_context([&]() -> Result<std::string> {
        const std::lock_guard lock{driver.mutex};
        if (auto loaded = driver.load_kernels(); !loaded) {
            return tl::unexpected{std::move(loaded.error())};
        }
        return driver.module_is;
    });
}

} // namespace upcie::gpu::cuda
