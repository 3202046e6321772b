// SPDX-License-Identifier: BSD-3-Clause
#include <upcie/dmabuf/importer.hpp>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>

#include <uapi/dmabuf_import.hpp>

namespace upcie::dmabuf {

namespace {

constexpr const char* import_operation = "import a dma-buf";
constexpr std::size_t segments_a_call = 65536;

std::string open_hint(int code, std::string hint) {
    switch (code) {
    case ENOENT:
        return "The kernel module is not loaded: `modprobe upcie_dmabuf_import`, once it is built for this kernel (by "
               "DKMS or make: src/kmod/dmabuf_import/README.md).";
    case EACCES:
        return "The node tells physical addresses and is root's alone (mode 0600): run as root, or let root give it to "
               "this user (docs/permissions.md).";
    default:
        return hint;
    }
}

const char* import_hint(int code) {
    switch (code) {
    case ENXIO:
        return "There is no such PCI function: `lspci -D` lists them.";
    case EOPNOTSUPP:
        return "The exporter does not serve this function: there is no peer-to-peer path between the two devices, or "
               "its driver exports nothing to others.";
    case EINVAL:
        return "The address of the PCI function is out of range, or the exporter finds no peer-to-peer path from its "
               "device to that function (an ACS or IOMMU setting, or a processor that is not known to forward such "
               "traffic).";
    case ENODEV:
        return "The exporter has revoked the buffer (its device was reset or closed, or its memory decode is off): "
               "export it again.";
    case EMFILE:
        return "This Importer holds as many imports as the module allows: release some, or open another.";
    case EAGAIN:
        return "The IOMMU domain of the function changed meanwhile: try again when nobody binds or unbinds it.";
    case EIO:
        return "The kernel cannot map that memory for this function: it lies above what the function's DMA mask "
               "reaches, "
               "and bounce buffers hold no pieces of more than 256 KiB (swiotlb=force, or a driver with a small mask).";
    case E2BIG:
        return "The buffer has more segments than the module tells of.";
    case ENOMEM:
        return "The kernel has no memory for it, or the exporter none to pin the buffer in.";
    default:
        return "";
    }
}

std::string addressing_hint(Addressing addressing) {
    if (addressing == Addressing::bounced) {
        return "The kernel may answer with bounce buffers for this function, which hold copies: its driver has set a "
               "DMA mask that does not reach all memory, or swiotlb=force is in effect. Bind it to vfio-pci, and take "
               "that option away.";
    }
    return "The addresses are those of the function's default DMA domain: right for its kernel driver, and plausible "
           "but wrong for vfio and iommufd, which attach a domain of their own. Under iommufd addresses come from "
           "IOMMU_IOAS_MAP_FILE alone; physical ones can be had with no IOMMU (vfio's no-IOMMU mode), or with the "
           "function's group set to identity and its driver not vfio.";
}

template <class T>
int call(os::System& system, int fd, unsigned long request, T& argument) {
    int result = 0;
    do {
        result = system.ioctl(fd, request, &argument);
    } while (result < 0 && errno == EINTR);
    return result;
}

std::string subject_of(const DmaBuf& buffer, const PciFunction& function) {
    return fmt::format("{} bytes of {} as {:04x}:{:02x}:{:02x}.{:x}", buffer.size().value(), buffer.facts().exporter,
                       function.domain, function.bus, function.device, function.function);
}

SegmentKind kind_of(std::uint32_t kind) noexcept {
    switch (kind) {
    case uapi::dmabuf_import_kind_ram:
        return SegmentKind::ram;
    case uapi::dmabuf_import_kind_bar:
        return SegmentKind::bar;
    default:
        return SegmentKind::unknown;
    }
}

/// Unknown values of an enumeration are a contradiction: the versions agree.
Result<ImportFacts> facts_of(const uapi::DmabufImport& answer, const DmaBuf& buffer, const std::string& subject) {
    if (answer.size != buffer.size().value() || answer.pin > uapi::dmabuf_import_pin_static ||
        answer.addressing > uapi::dmabuf_import_addressing_bounced) {
        return fail(EPROTO, import_operation, subject,
                    fmt::format("The module answered {} bytes, pin {}, addressing {}: that is not its interface of "
                                "version {}.",
                                answer.size, answer.pin, answer.addressing, uapi::dmabuf_import_api_version));
    }
    const auto* const end = std::find(std::begin(answer.exporter), std::end(answer.exporter), '\0');
    return ImportFacts{std::string{std::begin(answer.exporter), end},
                       ByteCount{answer.size},
                       answer.segment_count,
                       static_cast<Pinning>(answer.pin),
                       answer.peer_to_peer != 0,
                       static_cast<Addressing>(answer.addressing)};
}

} // namespace

std::string_view to_string(Pinning pinning) noexcept {
    switch (pinning) {
    case Pinning::pinned:
        return "pinned";
    case Pinning::immovable:
        return "immovable";
    case Pinning::refused:
        break;
    }
    return "refused";
}

std::string_view to_string(Addressing addressing) noexcept {
    switch (addressing) {
    case Addressing::physical:
        return "physical";
    case Addressing::bounced:
        return "bounce buffers";
    case Addressing::default_domain:
        break;
    }
    return "default domain";
}

Import::Import(Import&& other) noexcept
    : system_{other.system_},
      node_{std::move(other.node_)},
      handle_{other.handle_},
      facts_{std::move(other.facts_)},
      list_{std::move(other.list_)} {}

Import& Import::operator=(Import&& other) noexcept {
    if (this != &other) {
        if (node_) {
            (void)release();
        }
        system_ = other.system_;
        node_ = std::move(other.node_);
        handle_ = other.handle_;
        facts_ = std::move(other.facts_);
        list_ = std::move(other.list_);
    }
    return *this;
}

Import::~Import() {
    if (node_) {
        // Nobody is left to tell; the end of the process lets go of it in any case.
        (void)release();
    }
}

Result<void> Import::release() {
    if (!node_) {
        return fail(EBADF, "release an import", "dma-buf", "It was released before.");
    }
    uapi::DmabufImportRelease request{handle_, 0};
    const int result = call(*system_, node_->get(), uapi::dmabuf_import_release, request);
    const int code = errno;
    node_.reset();
    if (result < 0) {
        return fail(code, "release an import", fmt::format("dma-buf of {}", facts_.exporter), "");
    }
    return {};
}

Result<bool> Import::revoked() const {
    const auto subject = [&] { return fmt::format("dma-buf of {}", facts_.exporter); };
    if (!node_) {
        return fail(EBADF, "ask whether it is revoked", subject(), "It was released before.");
    }
    uapi::DmabufImportSegments request{}; // of no capacity: asks only
    request.handle = handle_;
    if (call(*system_, node_->get(), uapi::dmabuf_import_segments, request) < 0) {
        const int code = errno;
        if (code == ESTALE) {
            return true;
        }
        return fail(code, "ask whether it is revoked", subject(), "");
    }
    return false;
}

Result<void> Import::read_segments(const std::string& subject) {
    std::vector<Segment> segments;
    std::vector<uapi::DmabufImportSegment> room(std::min<std::uint64_t>(facts_.segment_count, segments_a_call));
    while (segments.size() < facts_.segment_count) {
        uapi::DmabufImportSegments request{};
        request.handle = handle_;
        request.first = segments.size();
        request.entries = reinterpret_cast<std::uintptr_t>(room.data());
        request.capacity = room.size();
        if (call(*system_, node_->get(), uapi::dmabuf_import_segments, request) < 0) {
            const int code = errno;
            return fail(code, "read the scatter list", subject,
                        code == ESTALE ? "The exporter revoked the buffer while it was being imported (its device was "
                                         "reset or closed, or it moved the memory): import it again."
                                       : "");
        }
        if (request.written == 0 || request.written > room.size() || request.total != facts_.segment_count ||
            request.written > facts_.segment_count - segments.size()) {
            return fail(EPROTO, "read the scatter list", subject,
                        fmt::format("The module wrote {} segments of {} from {} on, having said that there are {}.",
                                    request.written, request.total, segments.size(), facts_.segment_count));
        }
        for (std::size_t i = 0; i < request.written; ++i) {
            segments.push_back({DmaAddress{room[i].address}, ByteCount{room[i].length}, kind_of(room[i].kind)});
        }
    }
    auto list = ScatterList::from_segments(segments, subject);
    if (!list) {
        return tl::unexpected{std::move(list.error())};
    }
    list_ = std::move(*list);
    return list_.check_describes({}, facts_.size, subject);
}

Result<Importer> Importer::open(os::System& system, const char* node) {
    auto opened = os::open_file(system, node, O_RDWR);
    if (!opened) {
        Error error = std::move(opened.error());
        error.hint = open_hint(error.code, std::move(error.hint));
        return tl::unexpected{std::move(error)};
    }
    uapi::DmabufImportVersion version{};
    if (call(system, opened->get(), uapi::dmabuf_import_version, version) < 0) {
        const int code = errno;
        return fail(code, "ask the module's version", node,
                    code == ENOTTY ? "The node is not that of the module upcie_dmabuf_import." : "");
    }
    if (version.api_version != uapi::dmabuf_import_api_version) {
        const bool older = version.api_version < uapi::dmabuf_import_api_version;
        return fail(EPROTONOSUPPORT, "ask the module's version", node,
                    fmt::format("The module loaded speaks version {}, this library version {}: {}.",
                                version.api_version, uapi::dmabuf_import_api_version,
                                older ? "build and load the module that came with this library "
                                        "(src/kmod/dmabuf_import/README.md)"
                                      : "use a newer library, or load the module that came with this one"));
    }
    return Importer{system, std::make_shared<os::Fd>(std::move(*opened))};
}

Result<Import> Importer::import(const DmaBuf& buffer, const PciFunction& function, Accept accept) const {
    const std::string subject = subject_of(buffer, function);
    if (!buffer) {
        return fail(EBADF, import_operation, subject, "The DmaBuf holds none.");
    }
    uapi::DmabufImport request{};
    request.fd = buffer.fd();
    request.domain = function.domain;
    request.bus = function.bus;
    request.device = function.device;
    request.function = function.function;
    if (call(*system_, node_->get(), uapi::dmabuf_import_import, request) < 0) {
        const int code = errno;
        return fail(code, import_operation, subject, import_hint(code));
    }
    Import made{*system_, node_, request.handle}; // from here on lets go of it
    auto facts = facts_of(request, buffer, subject);
    if (!facts) {
        return tl::unexpected{std::move(facts.error())};
    }
    made.facts_ = std::move(*facts);
    if (accept == Accept::physical && made.facts_.addressing != Addressing::physical) {
        return fail(EOPNOTSUPP, import_operation, subject, addressing_hint(made.facts_.addressing));
    }
    if (auto read = made.read_segments(subject); !read) {
        return tl::unexpected{std::move(read.error())};
    }
    return made;
}

Result<bool> Importer::any_revoked(std::chrono::milliseconds wait) const {
    using std::chrono::steady_clock;
    constexpr std::int64_t longest = std::numeric_limits<int>::max();
    const auto until = steady_clock::now() + std::min(wait, std::chrono::milliseconds{longest});
    for (;;) {
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - steady_clock::now()).count();
        pollfd waiting{node_->get(), POLLPRI, 0};
        const int ready = system_->poll(&waiting, 1, static_cast<int>(std::clamp<std::int64_t>(left, 0, longest)));
        if (ready >= 0) {
            return ready == 1 && (waiting.revents & POLLPRI) != 0;
        }
        const int code = errno;
        if (code != EINTR) {
            return fail(code, "poll", "upcie_dmabuf_import", "");
        }
    }
}

} // namespace upcie::dmabuf
