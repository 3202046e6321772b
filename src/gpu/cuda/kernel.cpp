// SPDX-License-Identifier: BSD-3-Clause
#include <cerrno>

#include "gpu/cuda/driver.hpp"

namespace upcie::gpu::cuda {

namespace {

/// Two dwords at an address, read one by one and past any cache, as a device's registers want to be read, and put where
/// `to` says. PTX, which the driver compiles for whatever GPU there is: no nvcc is needed to run or to build it.
constexpr const char* reader_ptx = R"(.version 6.4
.target sm_70
.address_size 64

.visible .entry upcie_read_dwords(
    .param .u64 from,
    .param .u64 to
)
{
    .reg .u64 %source, %target;
    .reg .u32 %low, %high;

    ld.param.u64 %source, [from];
    ld.param.u64 %target, [to];
    ld.volatile.u32 %low, [%source];
    ld.volatile.u32 %high, [%source + 4];
    st.global.u32 [%target], %low;
    st.global.u32 [%target + 4], %high;
    ret;
}
)";

} // namespace

Result<KernelFunction> Cuda::Driver::reader() {
    const std::lock_guard lock{mutex};
    if (module == nullptr) {
        if (auto loaded = call(api.module_load, "the reading kernel (PTX 6.4, sm_70)",
                               "The GPU has to be of compute capability 7.0 or newer (Volta).", &module, reader_ptx);
            !loaded) {
            module = nullptr;
            return tl::unexpected{std::move(loaded.error())};
        }
    }
    KernelFunction function = nullptr;
    if (auto found = call(api.module_function, "the reading kernel",
                          "The driver compiled another program than it was given: try another driver.", &function,
                          module, "upcie_read_dwords");
        !found) {
        return tl::unexpected{std::move(found.error())};
    }
    return function;
}

Result<std::uint64_t> Cuda::read_by_kernel(DevicePointer pointer) {
    Driver& driver = *driver_;
    const Api& api = driver.api;
    if (pointer.value() % 8 != 0) {
        return fail(EINVAL, "read by a kernel", Driver::at(pointer), "The address has to be a multiple of 8.");
    }
    return driver.in_context([&]() -> Result<std::uint64_t> {
        auto function = driver.reader();
        if (!function) {
            return tl::unexpected{std::move(function.error())};
        }
        DeviceAddress target = 0;
        if (auto made =
                driver.call(api.allocate, "8 bytes", "The GPU has not even 8 bytes left: free some of its memory.",
                            &target, std::size_t{8});
            !made) {
            return tl::unexpected{std::move(made.error())};
        }
        DeviceAddress source = pointer.value();
        void* parameters[] = {&source, &target};
        constexpr const char* hint =
            "The kernel could not read there: the address has to be device memory or registered MMIO. After such a "
            "fault the context is lost, and with it all memory of the process on this GPU.";
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

} // namespace upcie::gpu::cuda
