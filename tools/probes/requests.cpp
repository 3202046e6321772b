// SPDX-License-Identifier: BSD-3-Clause
#include "requests.hpp"

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <linux/udmabuf.h>
#include <sys/mman.h>

namespace upcie::probes {

namespace {

constexpr std::uint32_t readable_writeable = uapi::iommu_ioas_map_readable | uapi::iommu_ioas_map_writeable;

template <class T>
constexpr std::uint32_t size_of = static_cast<std::uint32_t>(sizeof(T));

std::uint64_t pointer_value(const void* pointer) noexcept {
    return reinterpret_cast<std::uintptr_t>(pointer);
}

} // namespace

template <class T>
int Requests::ask(int fd, unsigned long request, T& argument) const {
    return system_.ioctl(fd, request, &argument) < 0 ? errno : 0;
}

Answered<os::Fd> Requests::open(const std::string& path) const {
    const int fd = system_.open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        return {errno, {}};
    }
    return {0, os::Fd{system_, fd}};
}

Answered<std::uint32_t> Requests::bind(int device, int iommufd) const {
    uapi::VfioDeviceBindIommufd request{};
    request.argsz = uapi::vfio_device_bind_iommufd_v1_size;
    request.iommufd = iommufd;
    const int error = ask(device, uapi::vfio_device_bind_iommufd, request);
    return {error, request.out_devid};
}

Answered<uapi::VfioDeviceInfo> Requests::device_info(int device) const {
    uapi::VfioDeviceInfo request{};
    request.argsz = size_of<uapi::VfioDeviceInfo>;
    const int error = ask(device, uapi::vfio_device_get_info, request);
    return {error, request};
}

Answered<uapi::VfioRegionInfo> Requests::region_info(int device, std::uint32_t index) const {
    uapi::VfioRegionInfo request{};
    request.argsz = size_of<uapi::VfioRegionInfo>;
    request.index = index;
    const int error = ask(device, uapi::vfio_device_get_region_info, request);
    return {error, request};
}

int Requests::attach(int device, std::uint32_t ioas) const {
    uapi::VfioDeviceAttachIommufdPt request{};
    request.argsz = uapi::vfio_device_attach_iommufd_pt_v1_size;
    request.pt_id = ioas;
    return ask(device, uapi::vfio_device_attach_iommufd_pt, request);
}

int Requests::detach(int device) const {
    uapi::VfioDeviceDetachIommufdPt request{};
    request.argsz = uapi::vfio_device_detach_iommufd_pt_v1_size;
    return ask(device, uapi::vfio_device_detach_iommufd_pt, request);
}

int Requests::reset(int device) const {
    return system_.ioctl_value(device, uapi::vfio_device_reset, 0) < 0 ? errno : 0;
}

Answered<os::Fd> Requests::export_dmabuf(int device, std::uint32_t region,
                                         const std::vector<uapi::VfioRegionDmaRange>& ranges) const {
    uapi::VfioDeviceFeatureDmaBuf details{};
    details.region_index = region;
    details.open_flags = O_RDWR | O_CLOEXEC;
    details.nr_ranges = static_cast<std::uint32_t>(ranges.size());
    const std::size_t fixed = sizeof(uapi::VfioDeviceFeature) + sizeof(details);
    std::vector<std::byte> request(fixed + ranges.size() * sizeof(uapi::VfioRegionDmaRange));
    uapi::VfioDeviceFeature header{};
    header.argsz = static_cast<std::uint32_t>(request.size());
    header.flags = uapi::vfio_device_feature_get | uapi::vfio_device_feature_dma_buf;
    std::memcpy(request.data(), &header, sizeof(header));
    std::memcpy(request.data() + sizeof(header), &details, sizeof(details));
    if (!ranges.empty()) {
        std::memcpy(request.data() + fixed, ranges.data(), ranges.size() * sizeof(uapi::VfioRegionDmaRange));
    }
    const int fd = system_.ioctl(device, uapi::vfio_device_feature, request.data());
    if (fd < 0) {
        return {errno, {}};
    }
    return {0, os::Fd{system_, fd}};
}

Answered<std::uint16_t> Requests::change_command(int device, std::uint16_t set, std::uint16_t clear) const {
    const Answered<uapi::VfioRegionInfo> config = region_info(device, uapi::vfio_pci_config_region_index);
    if (!config.ok()) {
        return {config.error, 0};
    }
    const off_t place = static_cast<off_t>(config.value.offset) + 4; // PCI: the command register
    std::uint16_t before = 0;
    const ssize_t got = system_.pread(device, &before, sizeof(before), place);
    if (got != static_cast<ssize_t>(sizeof(before))) {
        return {got < 0 ? errno : EIO, 0};
    }
    const std::uint16_t after = static_cast<std::uint16_t>((before | set) & ~clear);
    const ssize_t put = system_.pwrite(device, &after, sizeof(after), place);
    if (put != static_cast<ssize_t>(sizeof(after))) {
        return {put < 0 ? errno : EIO, before};
    }
    return {0, before};
}

Answered<std::uint32_t> Requests::ioas_alloc(int iommufd) const {
    uapi::IommuIoasAlloc request{};
    request.size = size_of<uapi::IommuIoasAlloc>;
    const int error = ask(iommufd, uapi::iommu_ioas_alloc, request);
    return {error, request.out_ioas_id};
}

int Requests::destroy(int iommufd, std::uint32_t id) const {
    uapi::IommuDestroy request{size_of<uapi::IommuDestroy>, id};
    return ask(iommufd, uapi::iommu_destroy, request);
}

Answered<uapi::IommuHwInfo> Requests::hw_info(int iommufd, std::uint32_t device_id) const {
    uapi::IommuHwInfo request{};
    request.size = size_of<uapi::IommuHwInfo>;
    request.dev_id = device_id;
    const int error = ask(iommufd, uapi::iommu_get_hw_info, request);
    return {error, request};
}

Answered<std::vector<uapi::IommuIovaRange>> Requests::iova_ranges(int iommufd, std::uint32_t ioas) const {
    std::vector<uapi::IommuIovaRange> ranges(64);
    uapi::IommuIoasIovaRanges request{};
    request.size = size_of<uapi::IommuIoasIovaRanges>;
    request.ioas_id = ioas;
    request.num_iovas = static_cast<std::uint32_t>(ranges.size());
    request.allowed_iovas = pointer_value(ranges.data());
    const int error = ask(iommufd, uapi::iommu_ioas_iova_ranges, request);
    if (error != 0) {
        return {error, {}};
    }
    ranges.resize(request.num_iovas);
    return {0, std::move(ranges)};
}

Answered<std::uint64_t> Requests::map(int iommufd, std::uint32_t ioas, const void* address,
                                      std::uint64_t length) const {
    uapi::IommuIoasMap request{};
    request.size = size_of<uapi::IommuIoasMap>;
    request.flags = readable_writeable;
    request.ioas_id = ioas;
    request.user_va = pointer_value(address);
    request.length = length;
    const int error = ask(iommufd, uapi::iommu_ioas_map, request);
    return {error, request.iova};
}

Answered<std::uint64_t> Requests::map_at(int iommufd, std::uint32_t ioas, const void* address, std::uint64_t length,
                                         std::uint64_t iova) const {
    uapi::IommuIoasMap request{};
    request.size = size_of<uapi::IommuIoasMap>;
    request.flags = readable_writeable | uapi::iommu_ioas_map_fixed_iova;
    request.ioas_id = ioas;
    request.user_va = pointer_value(address);
    request.length = length;
    request.iova = iova;
    const int error = ask(iommufd, uapi::iommu_ioas_map, request);
    return {error, request.iova};
}

Answered<std::uint64_t> Requests::map_file(int iommufd, std::uint32_t ioas, int fd, std::uint64_t start,
                                           std::uint64_t length) const {
    uapi::IommuIoasMapFile request{};
    request.size = size_of<uapi::IommuIoasMapFile>;
    request.flags = readable_writeable;
    request.ioas_id = ioas;
    request.fd = fd;
    request.start = start;
    request.length = length;
    const int error = ask(iommufd, uapi::iommu_ioas_map_file, request);
    return {error, request.iova};
}

Answered<std::uint64_t> Requests::unmap(int iommufd, std::uint32_t ioas, std::uint64_t iova,
                                        std::uint64_t length) const {
    uapi::IommuIoasUnmap request{};
    request.size = size_of<uapi::IommuIoasUnmap>;
    request.ioas_id = ioas;
    request.iova = iova;
    request.length = length;
    const int error = ask(iommufd, uapi::iommu_ioas_unmap, request);
    return {error, request.length};
}

Answered<Requests::PhysicalRun> Requests::noiommu_pa(int iommufd, std::uint32_t ioas, std::uint64_t iova,
                                                     std::uint64_t length) const {
    uapi::IommuIoasNoiommuGetPa request{};
    request.size = size_of<uapi::IommuIoasNoiommuGetPa>;
    request.ioas_id = ioas;
    request.iova = iova;
    request.length = length;
    const int error = ask(iommufd, uapi::iommu_ioas_noiommu_get_pa, request);
    return {error, {request.out_phys, request.length}};
}

Answered<std::uint64_t> Requests::option(int iommufd, std::uint16_t operation, std::uint64_t value) const {
    uapi::IommuOption request{};
    request.size = size_of<uapi::IommuOption>;
    request.option_id = uapi::iommu_option_rlimit_mode;
    request.op = operation;
    request.val64 = value;
    const int error = ask(iommufd, uapi::iommu_option, request);
    return {error, request.val64};
}

int Requests::set_rlimit_mode(int iommufd, std::uint64_t mode) const {
    return option(iommufd, uapi::iommu_option_op_set, mode).error;
}

Answered<std::uint64_t> Requests::rlimit_mode(int iommufd) const {
    return option(iommufd, uapi::iommu_option_op_get, 0);
}

Answered<os::Fd> Requests::memfd(const char* name, unsigned flags, std::uint64_t length) const {
    const int fd = system_.memfd_create(name, flags | MFD_CLOEXEC);
    if (fd < 0) {
        return {errno, {}};
    }
    os::Fd owner{system_, fd};
    if (system_.ftruncate(fd, static_cast<off_t>(length)) < 0) {
        return {errno, {}};
    }
    return {0, std::move(owner)};
}

Answered<os::Mapping> Requests::map_shared(int fd, std::uint64_t offset, std::uint64_t length) const {
    void* const address =
        system_.mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, static_cast<off_t>(offset));
    if (address == MAP_FAILED) {
        return {errno, {}};
    }
    return {0, os::Mapping{system_, address, ByteCount{length}}};
}

Answered<os::Mapping> Requests::anonymous(std::uint64_t length) const {
    void* const address = system_.mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (address == MAP_FAILED) {
        return {errno, {}};
    }
    return {0, os::Mapping{system_, address, ByteCount{length}}};
}

Answered<os::Fd> Requests::udmabuf(int control, int memfd, std::uint64_t length) const {
    udmabuf_create request{};
    request.memfd = static_cast<std::uint32_t>(memfd);
    request.flags = UDMABUF_FLAGS_CLOEXEC;
    request.size = length;
    const int fd = system_.ioctl(control, UDMABUF_CREATE, &request);
    if (fd < 0) {
        return {errno, {}};
    }
    return {0, os::Fd{system_, fd}};
}

} // namespace upcie::probes
