// SPDX-License-Identifier: BSD-3-Clause
#include "fake_kernel.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/udmabuf.h>
#include <sys/mman.h>
#include <unistd.h>

#include <uapi/iommufd.hpp>
#include <uapi/vfio.hpp>

namespace upcie::test {

namespace {

using testing::_;

int refuse(int code) {
    errno = code;
    return -1;
}
int say(int code) {
    return code == 0 ? 0 : refuse(code);
}

} // namespace

FakeKernel::FakeKernel() {
    registers_ = os::Fd{os::real_system(), ::memfd_create("fake-bar", MFD_CLOEXEC)};
    static_cast<void>(::ftruncate(registers_.get(), bar_bytes));
    set_register(in_bar_);
    ON_CALL(*this, open(_, _, _)).WillByDefault([this](const char* path, int flags, mode_t mode) {
        const std::string name{path};
        if (name == "/dev/iommu") {
            return open_iommufd != 0 ? refuse(open_iommufd) : ::memfd_create("fake-iommufd", MFD_CLOEXEC);
        }
        if (name == "/dev/udmabuf") {
            return open_udmabuf != 0 ? refuse(open_udmabuf) : ::memfd_create("fake-udmabuf", MFD_CLOEXEC);
        }
        if (name == function().vfio_cdev) {
            return ::fcntl(registers_.get(), F_DUPFD_CLOEXEC, 0);
        }
        if (name.rfind("/proc/self/fdinfo/", 0) == 0 && !exporter.empty()) {
            const int file = ::memfd_create("fake-fdinfo", MFD_CLOEXEC);
            const std::string text = fmt::format("pos:\t0\nsize:\t4194304\ncount:\t1\nexp_name:\t{}\n", exporter);
            static_cast<void>(::pwrite(file, text.data(), text.size(), 0));
            return file;
        }
        return os::real_system().open(path, flags, mode);
    });
    // The stub GPU's own dma-bufs are memfds here, whatever the machine has.
    ON_CALL(*this, access(testing::StrEq("/dev/udmabuf"), _)).WillByDefault(fails_with(ENOENT));
    ON_CALL(*this, memfd_create(_, _)).WillByDefault([this](const char* name, unsigned flags) {
        const int fd = ::memfd_create(name, flags);
        struct stat status {};
        if (std::string{name} == "upcie-probe" && ::fstat(fd, &status) == 0) {
            files_[status.st_ino] = Kind::memfd;
        }
        return fd;
    });
    ON_CALL(*this, mmap(_, _, _, _, _, _))
        .WillByDefault([this](void* address, std::size_t length, int protection, int flags, int fd, off_t offset) {
            struct stat status {};
            struct stat region {};
            if (fd >= 0 && ::fstat(fd, &status) == 0 && ::fstat(registers_.get(), &region) == 0) {
                const bool of_region = status.st_ino == region.st_ino;
                writeable_maps_of_the_region += of_region && (protection & PROT_WRITE) != 0 ? 1 : 0;
                const int code = of_region ? mmap_of_region : kind_of(fd) == Kind::bar ? mmap_of_bar_dma_buf : 0;
                if (code != 0) {
                    errno = code;
                    return MAP_FAILED;
                }
            }
            return os::real_system().mmap(address, length, protection, flags, fd, offset);
        });
    ON_CALL(*this, ioctl(_, _, _)).WillByDefault([this](int fd, unsigned long request, void* argument) {
        return answer(fd, request, argument);
    });
}

FakeKernel::~FakeKernel() = default;

void FakeKernel::set_register(std::uint64_t value) {
    in_bar_ = in_dma_bufs_ = value;
    static_cast<void>(::pwrite(registers_.get(), &value, sizeof value, 0));
}

pci::FunctionInfo FakeKernel::function(bool noiommu) {
    pci::FunctionInfo result;
    result.bdf = pci::Bdf::parse("0000:01:00.0").value();
    result.class_code = 0x010802;
    result.driver = "vfio-pci";
    result.vfio_name = noiommu ? "noiommu-vfio0" : "vfio0";
    result.vfio_cdev = "/dev/vfio/devices/vfio-of-the-test";
    return result;
}

FakeKernel::Kind FakeKernel::kind_of(int fd) {
    struct stat status {};
    if (::fstat(fd, &status) != 0) {
        return Kind::gpu;
    }
    const auto place = files_.find(status.st_ino);
    return place == files_.end() ? Kind::gpu : place->second;
}

int FakeKernel::make_file(Kind kind, std::uint64_t length) {
    const int fd = ::memfd_create("fake-dma-buf", MFD_CLOEXEC);
    struct stat status {};
    if (fd < 0 || ::ftruncate(fd, static_cast<off_t>(length)) != 0 || ::fstat(fd, &status) != 0) {
        return -1;
    }
    files_[status.st_ino] = kind;
    return fd;
}

int FakeKernel::take_file(void* argument) {
    auto* const request = static_cast<uapi::IommuIoasMapFile*>(argument);
    if (request->fd < 0 && !no_file_is_taken) {
        return refuse(EBADF);
    }
    const Kind kind = request->fd < 0 ? Kind::memfd : kind_of(request->fd);
    int code = map_file.at(kind);
    struct stat status {};
    if (code == 0 && kind == Kind::gpu && ::fstat(request->fd, &status) == 0) {
        const auto size = static_cast<std::uint64_t>(status.st_size);
        code = request->start + request->length > size ? EINVAL : request->length < size ? map_part : 0;
    }
    if (code != 0) {
        return refuse(code);
    }
    request->iova = next_iova_;
    mappings_[next_iova_] = {kind, request->length};
    next_iova_ += std::uint64_t{16} << 20;
    return 0;
}

int FakeKernel::tell_address(void* argument) {
    auto* const request = static_cast<uapi::IommuIoasNoiommuGetPa*>(argument);
    auto place = mappings_.upper_bound(request->iova);
    if (place == mappings_.begin()) {
        return refuse(ENOENT);
    }
    --place;
    const std::uint64_t inside = request->iova - place->first;
    if (inside >= place->second.length) {
        return refuse(ENOENT);
    }
    if (get_pa.at(place->second.kind) != 0) {
        return refuse(get_pa.at(place->second.kind));
    }
    if (get_pa_stops_half_way && place->second.kind == Kind::gpu && inside != 0) {
        return refuse(EIO);
    }
    request->out_phys = 0xfe200000 + inside;
    request->length = std::min(request->length, get_pa_stops_half_way ? 4096 : place->second.length - inside);
    return 0;
}

int FakeKernel::export_range(void* argument) {
    const auto* const bytes = static_cast<const std::byte*>(argument);
    uapi::VfioDeviceFeatureDmaBuf details{};
    uapi::VfioRegionDmaRange range{};
    std::memcpy(&details, bytes + sizeof(uapi::VfioDeviceFeature), sizeof details);
    std::memcpy(&range, bytes + sizeof(uapi::VfioDeviceFeature) + sizeof details, sizeof range);
    exported_regions.push_back(details.region_index);
    if (export_bar != 0) {
        return refuse(export_bar);
    }
    const int fd = make_file(Kind::bar, range.length);
    static_cast<void>(::pwrite(fd, &in_dma_bufs_, sizeof in_dma_bufs_, 0));
    return fd;
}

int FakeKernel::answer(int fd, unsigned long request, void* argument) {
    switch (request) {
    case uapi::vfio_device_bind_iommufd:
        return say(bind);
    case uapi::vfio_device_attach_iommufd_pt:
        return 0;
    case uapi::vfio_device_get_region_info: {
        auto* const region = static_cast<uapi::VfioRegionInfo*>(argument);
        region->size = region->index == 0 ? region_bytes : 0;
        region->offset = 0;
        return 0;
    }
    case uapi::vfio_device_feature:
        return export_range(argument);
    case uapi::iommu_ioas_alloc:
        static_cast<uapi::IommuIoasAlloc*>(argument)->out_ioas_id = 7;
        return 0;
    case uapi::iommu_ioas_map_file:
        return take_file(argument);
    case uapi::iommu_ioas_map: {
        auto* const mapped = static_cast<uapi::IommuIoasMap*>(argument);
        if (map_address != 0) {
            return refuse(map_address);
        }
        mapped->iova = next_iova_;
        mappings_[next_iova_] = {Kind::gpu, mapped->length};
        next_iova_ += std::uint64_t{16} << 20;
        return 0;
    }
    case uapi::iommu_ioas_unmap: {
        auto* const unmapped = static_cast<uapi::IommuIoasUnmap*>(argument);
        return mappings_.erase(unmapped->iova) != 0 ? 0 : refuse(ENOENT);
    }
    case uapi::iommu_ioas_noiommu_get_pa:
        return tell_address(argument);
    case UDMABUF_CREATE:
        return make_file(Kind::udmabuf, static_cast<udmabuf_create*>(argument)->size);
    default:
        return os::real_system().ioctl(fd, request, argument);
    }
}

} // namespace upcie::test
