// SPDX-License-Identifier: BSD-3-Clause
// A flavour of gpu::Runtime that has all it must. check.sh compiles it as it is, which must work, then without each
// function and with another signature of each, which must not, and the message must name the function.
#include <upcie/gpu/flavour.hpp>

using namespace upcie;

struct Whole {
#ifndef WITHHOLD_describe
#ifndef CHANGE_describe
    std::string describe() const;
#else
    const char* describe() const;
#endif
#endif
#ifndef WITHHOLD_allocate
#ifndef CHANGE_allocate
    Result<DevicePointer> allocate(ByteCount size);
#else
    Result<DevicePointer> allocate(int size); // a bare number: swapped arguments would compile
#endif
#endif
#ifndef WITHHOLD_free
#ifndef CHANGE_free
    Result<void> free(DevicePointer base);
#else
    void free(DevicePointer base);
#endif
#endif
#ifndef WITHHOLD_allocation_of
#ifndef CHANGE_allocation_of
    Result<gpu::Allocation> allocation_of(DevicePointer pointer);
#else
    Result<ByteCount> allocation_of(DevicePointer pointer);
#endif
#endif
#ifndef WITHHOLD_reported_granularity
#ifndef CHANGE_reported_granularity
    ByteCount reported_granularity() const;
#else
    ByteCount reported_granularity();
#endif
#endif
#ifndef WITHHOLD_export_range
#ifndef CHANGE_export_range
    Result<gpu::Export> export_range(DevicePointer start, ByteCount length);
#else
    Result<gpu::Export> export_range(ByteCount length, DevicePointer start);
#endif
#endif
#ifndef WITHHOLD_register_mmio
#ifndef CHANGE_register_mmio
    Result<DevicePointer> register_mmio(void* start, ByteCount length);
#else
    Result<void> register_mmio(void* start, ByteCount length);
#endif
#endif
#ifndef WITHHOLD_unregister_mmio
#ifndef CHANGE_unregister_mmio
    Result<void> unregister_mmio(void* start);
#else
    Result<void> unregister_mmio(DevicePointer start);
#endif
#endif
#ifndef WITHHOLD_copy_to_device
#ifndef CHANGE_copy_to_device
    Result<void> copy_to_device(DevicePointer to, const void* from, ByteCount length);
#else
    Result<void> copy_to_device(const void* from, DevicePointer to, ByteCount length);
#endif
#endif
#ifndef WITHHOLD_copy_to_host
#ifndef CHANGE_copy_to_host
    Result<void> copy_to_host(void* to, DevicePointer from, ByteCount length);
#else
    Result<void> copy_to_host(DevicePointer from, void* to, ByteCount length);
#endif
#endif
#ifndef WITHHOLD_read_by_kernel
#ifndef CHANGE_read_by_kernel
    Result<std::uint64_t> read_by_kernel(DevicePointer pointer);
#else
    std::uint64_t read_by_kernel(DevicePointer pointer);
#endif
#endif
#ifndef WITHHOLD_checksum
#ifndef CHANGE_checksum
    Result<std::uint64_t> checksum(DevicePointer start, ByteCount length);
#else
    Result<std::uint64_t> checksum(ByteCount length, DevicePointer start);
#endif
#endif
};

gpu::FlavourRuntime<Whole>* made = nullptr;
void use() {
    static_cast<void>(made->describe());
}
