// SPDX-License-Identifier: BSD-3-Clause
#include "vram_ioas.hpp"

#include <cerrno>
#include <optional>
#include <string>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>

#include <upcie/dmabuf/dma_buf.hpp>

#include "../noiommu_pa.hpp"
#include "probed_gpu.hpp"

namespace upcie::probes {

const char* const vram_ioas_question = "Can GPU memory enter an IOAS, so that a device under vfio can be given an "
                                       "address of it?";

Result<Session> open_ioas(const Requests& requests, const pci::FunctionInfo* function) {
    if (function != nullptr) {
        return open_session(requests, function->vfio_cdev);
    }
    Session result;
    Answered<os::Fd> iommufd = requests.open("/dev/iommu");
    if (!iommufd.ok()) {
        return fail(iommufd.error, "open", "/dev/iommu",
                    iommufd.error == ENOENT
                        ? "It takes a kernel with CONFIG_IOMMUFD and its module loaded (modprobe iommufd); Debian's "
                          "stock kernels have it off, and tests/vm/prepare.sh builds it as a module."
                        : "Give this user read and write access to it.");
    }
    result.iommufd = std::move(iommufd.value);
    const Answered<std::uint32_t> ioas = requests.ioas_alloc(result.iommufd.get());
    if (!ioas.ok()) {
        return fail(ioas.error, "IOMMU_IOAS_ALLOC", "/dev/iommu", "This is unexpected: see dmesg.");
    }
    result.ioas = ioas.value;
    return result;
}

namespace {

constexpr std::uint64_t buffer_bytes = std::uint64_t{4} << 20;
constexpr std::uint64_t slice_bytes = buffer_bytes / 2;
constexpr int kernel_enotsupp = 524; // linux/errno.h, not for user space
constexpr std::uint64_t part_bytes = std::uint64_t{64} << 10;

class IoasQuestion {
  public:
    IoasQuestion(Report& report, const Requests& requests, const Session& session, const pci::FunctionInfo* function,
                 gpu::Runtime& runtime)
        : report_{report},
          requests_{requests},
          session_{session},
          runtime_{runtime},
          noiommu_{function != nullptr && function->vfio_name.rfind("noiommu-", 0) == 0} {}

    Result<void> ask();

  private:
    /// What became of one mapping.
    struct Mapped {
        int error = 0;
        bool located = false; ///< without an IOMMU: GET_PA told where all of it is
    };

    [[nodiscard]] int iommufd() const { return session_.iommufd.get(); }
    [[nodiscard]] bool attached() const { return static_cast<bool>(session_.device); }
    [[nodiscard]] Answered<std::uint64_t> map_file(int fd, std::uint64_t start, std::uint64_t length) const {
        return requests_.map_file(iommufd(), session_.ioas, fd, start, length);
    }
    Mapped tell_mapping(const std::string& name, const char* how, const Answered<std::uint64_t>& mapped,
                        std::uint64_t length, const std::string& note = {});
    void unmap(std::uint64_t iova, std::uint64_t length) const {
        static_cast<void>(requests_.unmap(iommufd(), session_.ioas, iova, length));
    }
    void look_at_memfd();
    void look_at_bar();
    void look_at_udmabuf();
    void look_at_gpu(DevicePointer base);
    void look_at_exported(const gpu::Export& whole, DevicePointer base);
    void take(const Mapped& mapped);
    void judge();

    Report& report_;
    const Requests& requests_;
    const Session& session_;
    gpu::Runtime& runtime_;
    bool noiommu_;
    std::optional<int> bar_error_;     ///< of MAP_FILE of a vfio dma-buf, where there is one
    unsigned tried_ = 0;               ///< mappings of the GPU's dma-bufs by file that ought to be taken
    unsigned accepted_ = 0;            ///< of these
    int refusal_ = 0;                  ///< of the last that was not
    std::optional<int> address_error_; ///< of the mapping by address, where it could be asked
    bool located_ = false;             ///< GET_PA answered for some mapping of GPU memory
};

/// Tells the outcome, asks GET_PA where that can answer, and takes the mapping away again.
IoasQuestion::Mapped IoasQuestion::tell_mapping(const std::string& name, const char* how,
                                                const Answered<std::uint64_t>& mapped, std::uint64_t length,
                                                const std::string& note) {
    Mapped result;
    result.error = mapped.error;
    report_.outcome(name + how, mapped.error, note);
    if (!mapped.ok()) {
        return result;
    }
    if (noiommu_) {
        const PhysicalRuns walk = walk_runs(requests_, iommufd(), session_.ioas, mapped.value, length);
        result.located = walk.error == 0 && walk.covered() == length;
        report_.outcome(name + ".get_pa", walk.error);
        report_.observe(name + ".get_pa_covered", walk.covered(), "bytes");
        report_.observe(name + ".get_pa_runs", walk.merged(), "runs");
        if (!walk.runs.empty()) {
            report_.observe(name + ".get_pa_address", hex(walk.runs.front().address), "address");
        }
    }
    const Answered<std::uint64_t> unmapped = requests_.unmap(iommufd(), session_.ioas, mapped.value, length);
    report_.outcome(name + ".unmap", unmapped.error);
    report_.observe(name + ".unmapped", unmapped.value, "bytes");
    return result;
}

void IoasQuestion::look_at_memfd() {
    const Answered<os::Fd> memfd = requests_.memfd("upcie-probe", 0, part_bytes);
    Answered<std::uint64_t> mapped{memfd.error, 0};
    if (memfd.ok()) {
        mapped = map_file(memfd.value.get(), 0, part_bytes);
    }
    report_.control("", "control.map_file_of_a_memfd", mapped.ok(), outcome_word(mapped.error),
                    mapped.error == ENOTTY ? "this kernel has no IOMMU_IOAS_MAP_FILE at all: it came with Linux 6.13"
                                           : "a memfd can be mapped by file, so that a refusal is about the other file",
                    mapped.error);
    if (mapped.ok()) {
        if (noiommu_) {
            const int told = walk_runs(requests_, iommufd(), session_.ioas, mapped.value, part_bytes).error;
            report_.control("get_pa", "control.get_pa_of_a_memfd", told == 0, outcome_word(told),
                            told == ENOTTY  ? "this kernel has no IOMMU_IOAS_NOIOMMU_GET_PA: it came with Linux 7.3"
                            : told == EPERM ? "it takes CAP_SYS_RAWIO: run as root"
                                            : "memory that has addresses is told them",
                            told);
        }
        unmap(mapped.value, part_bytes);
    }
    const Answered<std::uint64_t> nothing = map_file(-1, 0, part_bytes);
    report_.control("map_file", "control.map_file_of_no_file", nothing.error == EBADF, outcome_word(nothing.error),
                    "a descriptor that is none is noticed", nothing.error);
    if (nothing.ok()) {
        unmap(nothing.value, part_bytes);
    }
}

/// The dma-buf that MAP_FILE was made for, where a device is at hand and the kernel exports its BARs.
void IoasQuestion::look_at_bar() {
    if (!attached()) {
        report_.not_seen("vfio.export", "no device was named, whose BAR could be exported");
        return;
    }
    const Answered<os::Fd> exported = requests_.export_dmabuf(session_.device.get(), 0, {{0, page}});
    report_.outcome("vfio.export", exported.error,
                    exported.error == ENOTTY ? "exports of BARs came with Linux 6.19" : "the first page of BAR 0");
    if (!exported.ok()) {
        return;
    }
    bar_error_ = tell_mapping("vfio", ".map_file", map_file(exported.value.get(), 0, page), page).error;
    report_.control("exporters", "control.map_file_of_a_vfio_dma_buf", *bar_error_ == 0, outcome_word(*bar_error_),
                    "a dma-buf of vfio's can be mapped by file, so that a refusal is about who exported the other",
                    *bar_error_);
}

void IoasQuestion::look_at_udmabuf() {
    const Answered<os::Fd> control = requests_.open("/dev/udmabuf");
    if (!control.ok()) {
        report_.not_seen("udmabuf.map_file", "/dev/udmabuf says " + outcome_word(control.error));
        return;
    }
    const Answered<os::Fd> memfd = requests_.memfd("upcie-probe", MFD_ALLOW_SEALING, part_bytes);
    if (memfd.ok()) {
        static_cast<void>(requests_.system().fcntl(memfd.value.get(), F_ADD_SEALS, F_SEAL_SHRINK));
    }
    const Answered<os::Fd> buffer = requests_.udmabuf(control.value.get(), memfd.value.get(), part_bytes);
    if (!buffer.ok()) {
        report_.not_seen("udmabuf.map_file", "UDMABUF_CREATE says " + outcome_word(buffer.error));
        return;
    }
    tell_mapping("udmabuf", ".map_file", map_file(buffer.value.get(), 0, part_bytes), part_bytes,
                 "system memory, exported by another driver than vfio");
}

void IoasQuestion::take(const Mapped& mapped) {
    ++tried_;
    accepted_ += mapped.error == 0 ? 1U : 0U;
    refusal_ = mapped.error != 0 ? mapped.error : refusal_;
    located_ = located_ || mapped.located;
}

void IoasQuestion::look_at_exported(const gpu::Export& whole, DevicePointer base) {
    const int fd = whole.fd.get();
    const std::uint64_t start = whole.file_offset.value();
    take(tell_mapping("gpu.whole", ".map_file", map_file(fd, start, buffer_bytes), buffer_bytes));
    take(tell_mapping("gpu.part", ".map_file", map_file(fd, start, part_bytes), part_bytes, "its first 64 KiB"));
    take(tell_mapping("gpu.part_at_2m", ".map_file", map_file(fd, start + slice_bytes, part_bytes), part_bytes,
                      "64 KiB from 2 MiB on"));
    const std::uint64_t size = whole.size.value();
    static_cast<void>(tell_mapping("gpu.past_its_end", ".map_file", map_file(fd, start, size + page), size + page,
                                   "a page more than there is"));
    if (const auto slice = runtime_.export_range(base + ByteCount{slice_bytes}, ByteCount{slice_bytes})) {
        report_.observe("gpu.slice.size", slice->size.value(), "bytes", "of an export of 2 MiB at 2 MiB");
        take(tell_mapping("gpu.slice", ".map_file", map_file(slice->fd.get(), slice->file_offset.value(), slice_bytes),
                          slice_bytes));
    } else {
        tell(report_, "gpu.slice.export", slice.error());
    }
    if (!attached()) {
        report_.not_seen("gpu.whole.map_by_address",
                         "no device is attached: the kernel takes any address until there is one to pin it for");
        return;
    }
    const Answered<os::Mapping> view = requests_.map_shared(fd, start, buffer_bytes);
    report_.outcome("gpu.whole.mmap", view.error,
                    view.error == kernel_enotsupp ? "ENOTSUPP, which only the kernel has a name for" : "");
    if (view.ok()) {
        const Mapped mapped = tell_mapping("gpu.whole", ".map_by_address",
                                           requests_.map(iommufd(), session_.ioas, view.value.data(), buffer_bytes),
                                           buffer_bytes, "the addresses at which the CPU has it");
        address_error_ = mapped.error;
        located_ = located_ || mapped.located;
    }
}

void IoasQuestion::look_at_gpu(DevicePointer base) {
    const auto whole = runtime_.export_range(base, ByteCount{buffer_bytes});
    report_.control("", "control.gpu_memory_is_exported", whole.has_value(), whole ? "ok" : outcome_word(whole.error()),
                    "there has to be a descriptor to map");
    if (!whole) {
        return;
    }
    report_.observe("gpu.whole.size", whole->size.value(), "bytes", "of the descriptor");
    std::string exporter;
    std::string why;
    if (auto copy = whole->fd.duplicate(); !copy) {
        why = copy.error().message();
    } else if (const auto buffer = dmabuf::DmaBuf::adopt(requests_.system(), std::move(*copy)); !buffer) {
        why = buffer.error().message();
    } else {
        exporter = buffer->facts().exporter;
    }
    report_.control("", "control.the_export_is_a_dma_buf", !exporter.empty(),
                    exporter.empty() ? Value(nullptr) : Value(exporter),
                    exporter.empty() ? why : "as the kernel names its exporter; what maps another file says nothing");
    look_at_exported(*whole, base);
}

void IoasQuestion::judge() {
    const bool all = tried_ != 0 && accepted_ == tried_;
    const bool none = accepted_ == 0;
    const std::string said = outcome_word(refusal_);
    report_.answer("map_file",
                   all    ? "accepted"
                   : none ? "refused"
                          : "partly",
                   all ? "IOMMU_IOAS_MAP_FILE takes the GPU's dma-bufs into an IOAS, whole, in part and at an offset."
                   : none
                       ? fmt::format("IOMMU_IOAS_MAP_FILE does not take the GPU's dma-buf, neither whole nor in part "
                                     "({}).",
                                     tried_ == 0 ? "there was none to map" : said)
                       : fmt::format("IOMMU_IOAS_MAP_FILE takes {} of {} mappings of the GPU's dma-bufs, and says {} "
                                     "to the last of the others.",
                                     accepted_, tried_, said));
    const bool vfios = bar_error_ == 0;
    report_.answer("exporters",
                   !bar_error_ ? "not_compared"
                   : !vfios    ? "none"
                   : none      ? "vfio_only"
                               : "gpu_too",
                   !bar_error_
                       ? "No dma-buf of vfio's was at hand to compare with: name a device whose BAR this kernel "
                         "exports."
                   : !vfios ? "IOMMU_IOAS_MAP_FILE takes no dma-buf of vfio's, whose kernel side it was made for."
                   : none   ? "The same request takes a dma-buf that vfio exports: who exported it makes the "
                              "difference, not that it is a dma-buf."
                            : "It takes dma-bufs of vfio's and the GPU's.");
    report_.answer("map_address",
                   !address_error_        ? "not_tried"
                   : *address_error_ == 0 ? "accepted"
                                          : "refused",
                   !address_error_ ? "IOMMU_IOAS_MAP of the GPU's memory by address could not be asked: the CPU has no "
                                     "address of it, or no device is attached."
                   : *address_error_ == 0
                       ? "IOMMU_IOAS_MAP takes the GPU's memory by the addresses at which the CPU has it."
                       : fmt::format("IOMMU_IOAS_MAP does not take it by the addresses at which the CPU has it ({}).",
                                     outcome_word(*address_error_)));
    const bool mapped = accepted_ != 0 || address_error_ == 0;
    report_.answer("get_pa",
                   !noiommu_  ? "not_tried"
                   : !mapped  ? "not_mapped"
                   : located_ ? "answered"
                              : "refused",
                   !noiommu_ ? "IOMMU_IOAS_NOIOMMU_GET_PA is for a device without an IOMMU, and none was named."
                   : !mapped ? "IOMMU_IOAS_NOIOMMU_GET_PA tells addresses of what is mapped, and no GPU memory is."
                   : located_
                       ? "IOMMU_IOAS_NOIOMMU_GET_PA tells where GPU memory is that MAP_FILE took."
                       : "GPU memory is mapped, and IOMMU_IOAS_NOIOMMU_GET_PA does not tell where all of it is.");
    const bool possible = noiommu_ ? located_ : mapped;
    report_.answer(
        "peer_dma", possible ? "possible" : "impossible",
        possible ? "A device under vfio can be given an address of GPU memory; whether its data arrive there "
                   "was not tried here."
        : mapped ? "GPU memory enters an IOAS, but without an IOMMU a device needs the addresses behind it, and "
                   "nobody tells them."
                 : "Nothing leads GPU memory into an IOAS here, so that a device under vfio cannot be given an "
                   "address of it. Bus addresses of a dma-buf importer are another way, good only with no "
                   "IOMMU or in an identity domain.");
}

Result<void> IoasQuestion::ask() {
    const auto base = runtime_.allocate(ByteCount{buffer_bytes});
    if (!base) {
        return tl::unexpected{base.error()};
    }
    report_.observe(
        "ioas.device_attached", attached(), {},
        attached() ? ""
                   : "which files are taken is decided all the same; nothing is pinned before a device is attached");
    look_at_memfd();
    look_at_bar();
    look_at_udmabuf();
    look_at_gpu(*base);
    if (const auto freed = runtime_.free(*base); !freed) {
        tell(report_, "gpu.free", freed.error());
    }
    judge();
    return {};
}

} // namespace

Result<void> ask_vram_ioas(Report& report, const Requests& requests, const Session& session,
                           const pci::FunctionInfo* function, gpu::Runtime& runtime) {
    return IoasQuestion{report, requests, session, function, runtime}.ask();
}

} // namespace upcie::probes
