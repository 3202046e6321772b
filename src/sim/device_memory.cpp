// SPDX-License-Identifier: BSD-3-Clause
#include <upcie/sim/device_memory.hpp>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <vector>

#include <fmt/format.h>
#include <sys/stat.h>

namespace upcie::sim {

namespace {

constexpr std::uint64_t first_bus_address = 0x5000'0000'0000; // in a BAR that does not exist
constexpr std::uint64_t run_bytes = std::uint64_t{1} << 20;   // and scattered there, as a fragmented GPU's memory is
constexpr std::uint64_t run_stride = 2 * run_bytes;

/// Bus addresses that nobody else was given.
Result<dmabuf::ScatterList> make_up_addresses(std::atomic<std::uint64_t>& next, ByteCount size) {
    std::vector<dmabuf::Segment> segments;
    const std::uint64_t runs = (size.value() + run_bytes - 1) / run_bytes;
    const std::uint64_t first = next.fetch_add(runs * run_stride);
    for (std::uint64_t i = 0; i < runs; ++i) {
        segments.push_back({DmaAddress{first + i * run_stride},
                            ByteCount{std::min(run_bytes, size.value() - i * run_bytes)}, dmabuf::SegmentKind::bar});
    }
    return dmabuf::ScatterList::from_segments(segments, "an export that is reached by copies");
}

} // namespace

Result<std::shared_ptr<void>> AddressSpace::reach_by(int fd, Reach reach) {
    struct stat status {};
    if (system_.fstat(fd, &status) != 0) {
        return fail(errno, "reach device memory", fmt::format("descriptor {}", fd), "Give an open descriptor.");
    }
    auto kept = std::make_shared<const Reach>(std::move(reach));
    const std::unique_lock lock{mutex_};
    std::erase_if(reaches_, [](const auto& one) { return one.second.expired(); });
    reaches_.insert_or_assign({status.st_dev, status.st_ino}, kept);
    return std::const_pointer_cast<Reach>(kept);
}

memory::DeviceExports::Importer import_by_copies(std::shared_ptr<AddressSpace> space,
                                                 std::shared_ptr<gpu::Runtime> runtime) {
    const auto next = std::make_shared<std::atomic<std::uint64_t>>(first_bus_address);
    return [space = std::move(space), runtime = std::move(runtime),
            next](const gpu::Export& exported) -> Result<memory::DeviceExports::Import> {
        const DevicePointer start = exported.start;
        const std::uint64_t skipped = exported.file_offset.value();
        Reach reach;
        // The bytes at offset N of the export are those N bytes after what was asked: true where exports describe what
        // was asked, and from its beginning. Offsets count from the file's beginning here.
        reach.read = [runtime, start, skipped](ByteCount offset, std::span<std::byte> out) {
            const ByteCount inside{offset.value() - skipped};
            return runtime->copy_to_host(out.data(), start + inside, ByteCount{out.size()}).has_value();
        };
        reach.write = [runtime, start, skipped](ByteCount offset, std::span<const std::byte> data) {
            const ByteCount inside{offset.value() - skipped};
            return runtime->copy_to_device(start + inside, data.data(), ByteCount{data.size()}).has_value();
        };
        auto kept = space->reach_by(exported.fd.get(), std::move(reach));
        if (!kept) {
            return tl::unexpected{std::move(kept.error())};
        }
        auto bus = make_up_addresses(*next, exported.size);
        if (!bus) {
            return tl::unexpected{std::move(bus.error())};
        }
        return memory::DeviceExports::Import{std::move(*bus), std::move(*kept), {}};
    };
}

} // namespace upcie::sim
