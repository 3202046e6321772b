// SPDX-License-Identifier: BSD-3-Clause
#include "noiommu_pa.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fmt/format.h>
#include <sys/mman.h>

#include "nvme_witness.hpp"
#include "session.hpp"

namespace upcie::probes {

namespace {

constexpr std::uint64_t huge_page = 2 * 1024 * 1024;
constexpr std::uint64_t unknown = ~std::uint64_t{0};

using Witness = std::function<std::uint64_t(std::uint64_t)>;

struct Context {
    Report& report;
    const Requests& requests;
    const Session& session;

    [[nodiscard]] PhysicalRuns walk(std::uint64_t iova, std::uint64_t length) const {
        return walk_runs(requests, session.iommufd.get(), session.ioas, iova, length);
    }
    [[nodiscard]] Answered<Requests::PhysicalRun> ask(std::uint64_t iova, std::uint64_t length) const {
        return requests.noiommu_pa(session.iommufd.get(), session.ioas, iova, length);
    }
};

/// Tells what the walk gave and how the witness sees it. True when every page is equal.
bool tell(const Context& at, const std::string& name, const PhysicalRuns& walk, std::uint64_t length,
          const Witness& witness, const char* witness_name) {
    at.report.outcome(name + ".get_pa", walk.error);
    at.report.observe(name + ".length", length, "bytes");
    at.report.observe(name + ".covered", walk.covered(), "bytes");
    at.report.observe(name + ".calls", walk.runs.size(), "answers");
    at.report.observe(name + ".runs_merged", walk.merged(), "runs", "neighbouring answers that abut taken as one");
    at.report.observe(name + ".shortest_answer", walk.shortest(), "bytes");
    at.report.observe(name + ".longest_answer", walk.longest(), "bytes");
    const Comparison compared = compare(walk, witness);
    at.report.observe(name + ".first_equal", compared.first_equal, {}, witness_name);
    at.report.observe(name + ".pages_compared", compared.pages, "pages");
    at.report.observe(name + ".pages_equal", compared.equal, "pages");
    at.report.observe(name + ".pages_unknown", compared.unknown, "pages", "the witness does not say");
    if (!walk.runs.empty()) {
        at.report.observe(name + ".first_address", hex(walk.runs.front().address), "address");
    }
    return walk.error == 0 && walk.covered() == length && compared.equal == compared.pages && compared.pages > 0;
}

/// The edges of one mapping: what is asked there must not be answered with something.
void look_at_edges(const Context& at, std::uint64_t iova, std::uint64_t length) {
    const Answered<Requests::PhysicalRun> inside = at.ask(iova + 512, page);
    at.report.outcome("edge.unaligned_iova", inside.error);
    if (inside.ok()) {
        const Answered<Requests::PhysicalRun> whole = at.ask(iova, page);
        at.report.observe("edge.unaligned_iova_keeps_offset",
                          whole.ok() && inside.value.address == whole.value.address + 512);
        at.report.observe("edge.unaligned_iova_length", inside.value.length, "bytes", "4096 asked");
    }
    const Answered<Requests::PhysicalRun> last = at.ask(iova + length - page, 16 * page);
    at.report.outcome("edge.beyond_the_end", last.error, "the last page, 16 asked");
    at.report.observe("edge.beyond_the_end_length", last.value.length, "bytes");
    at.report.outcome("edge.behind_the_mapping", at.ask(iova + length, page).error);
    at.report.outcome("edge.length_0", at.ask(iova, 0).error);
    at.report.outcome("edge.length_all", at.ask(iova, unknown).error);
    at.report.outcome("edge.iova_all_ones", at.ask(unknown, page).error);
}

/// A drive told to write to the address: the last witness, and the one that matters.
void look_at_dma(const Context& at, const pci::FunctionInfo& function, std::uint64_t rings_address,
                 const SharedMemory& memory, std::uint64_t data_offset, std::uint64_t data_address) {
    if (!function.is_nvme()) {
        at.report.not_seen("memfd.dma", "only an NVMe controller can be told to write somewhere");
        return;
    }
    Result<DmaWitness> witness =
        DmaWitness::open(at.requests, at.session.device.get(), memory.view.data(), rings_address);
    const Result<void> started = witness ? witness->start() : tl::unexpected{witness.error()};
    if (!started) {
        at.report.not_seen("memfd.dma", started.error().message());
        return;
    }
    at.report.observe("memfd.dma", witness->identify(memory.view.data() + data_offset, data_address).word(), {},
                      "the drive writes to the address that GET_PA gave");
    static_cast<void>(witness->stop());
}

/// Address of the page at `offset` in runs; `unknown` outside.
std::uint64_t address_at(const PhysicalRuns& walk, std::uint64_t offset) {
    std::uint64_t start = 0;
    for (const Requests::PhysicalRun& run : walk.runs) {
        if (offset < start + run.length) {
            return run.address + (offset - start);
        }
        start += run.length;
    }
    return unknown;
}

bool look_at_memfd(const Context& at, const pci::FunctionInfo& function, const Pagemap& pagemap, std::uint64_t length,
                   unsigned flags, const std::string& name) {
    Result<SharedMemory> memory = make_shared_memory(at.requests, "upcie-probe", length, flags);
    if (!memory) {
        at.report.not_seen(name + ".get_pa", memory.error().message());
        return false;
    }
    const std::byte* const view = memory->view.data();
    const Answered<std::uint64_t> iova =
        at.requests.map_file(at.session.iommufd.get(), at.session.ioas, memory->file.get(), 0, length);
    at.report.outcome(name + ".map_file", iova.error, iova.error == ENOMEM ? "no huge pages reserved, or memlock" : "");
    if (!iova.ok()) {
        return false;
    }
    std::memset(memory->view.data(), 0, length); // present in this process too, or pagemap would say nothing
    const PhysicalRuns walk = at.walk(iova.value, length);
    const bool equal = tell(
        at, name, walk, length, [&](std::uint64_t offset) { return pagemap.physical(view + offset); }, "pagemap");
    if (name == "memfd") {
        look_at_edges(at, iova.value, length);
        // Rings want two pages that abut for the device: each queue has its own address, so any two pages do not do.
        for (std::uint64_t offset = 0; offset + 4 * page <= length; offset += page) {
            const std::uint64_t address = address_at(walk, offset);
            if (address != unknown && address_at(walk, offset + page) == address + page) {
                SharedMemory rings{os::Fd{}, os::Mapping{}};
                Answered<os::Mapping> window = at.requests.map_shared(memory->file.get(), offset, 4 * page);
                if (window.ok()) {
                    rings.view = std::move(window.value);
                    look_at_dma(at, function, address, rings, 2 * page, address_at(walk, offset + 2 * page));
                }
                break;
            }
        }
    }
    const int unmapped = at.requests.unmap(at.session.iommufd.get(), at.session.ioas, iova.value, length).error;
    at.report.outcome(name + ".unmap", unmapped);
    at.report.outcome(name + ".get_pa_after_unmap", at.ask(iova.value, page).error);
    return equal;
}

bool look_at_anonymous(const Context& at, const Pagemap& pagemap, std::uint64_t length) {
    const Answered<os::Mapping> memory = at.requests.anonymous(length);
    if (!memory.ok()) {
        at.report.not_seen("anonymous.get_pa", "no memory");
        return false;
    }
    std::memset(memory.value.data(), 0x5a, length);
    const std::byte* const view = memory.value.data();
    const Answered<std::uint64_t> iova =
        at.requests.map(at.session.iommufd.get(), at.session.ioas, memory.value.data(), length);
    at.report.outcome("anonymous.map", iova.error);
    if (!iova.ok()) {
        return false;
    }
    const bool equal = tell(
        at, "anonymous", at.walk(iova.value, length), length,
        [&](std::uint64_t offset) { return pagemap.physical(view + offset); }, "pagemap");
    static_cast<void>(at.requests.unmap(at.session.iommufd.get(), at.session.ioas, iova.value, length));
    return equal;
}

bool look_at_bar(const Context& at, const pci::FunctionInfo& function) {
    const pci::BarInfo* const bar = function.bar(0);
    if (bar == nullptr || bar->io || bar->unassigned) {
        at.report.not_seen("bar.get_pa", "BAR 0 is no memory");
        return false;
    }
    const std::uint64_t length = bar->size.value();
    const Answered<os::Fd> exported = at.requests.export_dmabuf(at.session.device.get(), 0, {{0, length}});
    at.report.outcome("bar.export", exported.error);
    if (!exported.ok()) {
        return false;
    }
    const Answered<std::uint64_t> iova =
        at.requests.map_file(at.session.iommufd.get(), at.session.ioas, exported.value.get(), 0, length);
    at.report.outcome("bar.map_file", iova.error);
    if (!iova.ok()) {
        return false;
    }
    at.report.observe("bar.sysfs_resource", hex(bar->address.value()), "address");
    const bool equal = tell(
        at, "bar", at.walk(iova.value, length), length,
        [&](std::uint64_t offset) { return bar->address.value() + offset; }, "sysfs resource");
    static_cast<void>(at.requests.unmap(at.session.iommufd.get(), at.session.ioas, iova.value, length));
    return equal;
}

void look_at_controls(const Context& at, const Pagemap& pagemap) {
    std::vector<std::byte> touched(2 * page, std::byte{1});
    const std::uint64_t own = pagemap.physical(touched.data());
    at.report.control("memory", "control.pagemap_tells", own != unknown,
                      own == unknown ? Value(nullptr) : Value(hex(own)),
                      "without CAP_SYS_ADMIN pagemap gives frame 0 for everything and witnesses nothing");
    const int nothing = at.ask(std::uint64_t{1} << 38, page).error;
    at.report.control("", "control.unmapped_iova_is_refused", nothing != 0, outcome_word(nothing),
                      "an address that was never mapped has no answer", nothing);
}

} // namespace

std::uint64_t PhysicalRuns::covered() const noexcept {
    std::uint64_t sum = 0;
    for (const Requests::PhysicalRun& run : runs) {
        sum += run.length;
    }
    return sum;
}

std::uint64_t PhysicalRuns::shortest() const noexcept {
    std::uint64_t least = runs.empty() ? 0 : runs.front().length;
    for (const Requests::PhysicalRun& run : runs) {
        least = std::min(least, run.length);
    }
    return least;
}

std::uint64_t PhysicalRuns::longest() const noexcept {
    std::uint64_t most = 0;
    for (const Requests::PhysicalRun& run : runs) {
        most = std::max(most, run.length);
    }
    return most;
}

std::size_t PhysicalRuns::merged() const noexcept {
    std::size_t count = runs.empty() ? 0 : 1;
    for (std::size_t i = 1; i < runs.size(); ++i) {
        if (runs[i - 1].address + runs[i - 1].length != runs[i].address) {
            ++count;
        }
    }
    return count;
}

PhysicalRuns walk_runs(const Requests& requests, int iommufd, std::uint32_t ioas, std::uint64_t iova,
                       std::uint64_t length) {
    PhysicalRuns result;
    std::uint64_t done = 0;
    while (done < length) {
        const Answered<Requests::PhysicalRun> run = requests.noiommu_pa(iommufd, ioas, iova + done, length - done);
        if (!run.ok()) {
            result.error = run.error;
            return result;
        }
        if (run.value.length == 0 || run.value.length > length - done) {
            result.error = EPROTO;
            return result;
        }
        result.runs.push_back(run.value);
        done += run.value.length;
    }
    return result;
}

Comparison compare(const PhysicalRuns& runs, const std::function<std::uint64_t(std::uint64_t)>& witness) {
    Comparison result;
    std::uint64_t start = 0;
    for (const Requests::PhysicalRun& run : runs.runs) {
        for (std::uint64_t offset = 0; offset < run.length; offset += page) {
            const std::uint64_t truth = witness(start + offset);
            ++result.pages;
            result.unknown += truth == unknown ? 1 : 0;
            result.equal += truth == run.address + offset ? 1 : 0;
            if (result.pages == 1) {
                result.first_equal = truth == run.address;
            }
        }
        start += run.length;
    }
    return result;
}

Result<Pagemap> Pagemap::open(os::System& system) {
    Result<os::Fd> file = os::open_file(system, "/proc/self/pagemap", 0);
    if (!file) {
        return tl::unexpected{file.error()};
    }
    return Pagemap{system, std::move(*file)};
}

std::uint64_t Pagemap::physical(const void* address) const {
    const std::uint64_t index = reinterpret_cast<std::uintptr_t>(address) / page;
    std::uint64_t entry = 0;
    const ssize_t got = system_->pread(file_.get(), &entry, sizeof(entry), static_cast<off_t>(index * sizeof(entry)));
    // Documentation/admin-guide/mm/pagemap.rst: bit 63 present, bits 54:0 the frame.
    constexpr std::uint64_t frame_mask = (std::uint64_t{1} << 55) - 1;
    const bool told = got == static_cast<ssize_t>(sizeof(entry)) && (entry >> 63) != 0 && (entry & frame_mask) != 0;
    return told ? (entry & frame_mask) * page : unknown;
}

Result<void> ask_noiommu_pa(Report& report, const Requests& requests, const pci::FunctionInfo& function,
                            std::uint64_t length) {
    const Result<Session> session = open_session(requests, function.vfio_cdev);
    if (!session) {
        return tl::unexpected{session.error()};
    }
    const Result<Pagemap> pagemap = Pagemap::open(requests.system());
    if (!pagemap) {
        return tl::unexpected{pagemap.error()};
    }
    const Context at{report, requests, *session};
    const int supported = at.ask(0, page).error;
    if (supported == ENOTTY) {
        return fail(supported, "IOMMU_IOAS_NOIOMMU_GET_PA", "/dev/iommu", "The request is new in Linux 7.3.");
    }
    if (supported == EPERM) {
        return fail(supported, "IOMMU_IOAS_NOIOMMU_GET_PA", "/dev/iommu", "It takes CAP_SYS_RAWIO: run as root.");
    }
    look_at_controls(at, *pagemap);
    const bool memfd = look_at_memfd(at, function, *pagemap, length, 0, "memfd");
    const std::uint64_t huge_length = (length + huge_page - 1) / huge_page * huge_page;
    const bool huge = look_at_memfd(at, function, *pagemap, huge_length, MFD_HUGETLB, "hugetlb_memfd");
    const bool anonymous = look_at_anonymous(at, *pagemap, length);
    const bool bar = look_at_bar(at, function);

    const bool huge_seen = report.find("hugetlb_memfd.calls") != nullptr;
    const bool all = memfd && anonymous && (huge || !huge_seen);
    report.answer(
        "memory", all ? "equal" : "differs",
        all ? fmt::format("GET_PA gives the very address that pagemap gives, for every page of a memfd{} and of "
                          "anonymous memory.",
                          huge ? ", of a memfd of huge pages" : "")
            : "GET_PA and pagemap differ for some page: see the observations.");
    if (report.find("bar.calls") != nullptr) {
        report.answer("bar", bar ? "equal" : "differs",
                      bar ? "For a BAR exported as a dma-buf it gives the BAR's own bus address, as sysfs has it."
                          : "For a BAR exported as a dma-buf it gives another address than sysfs.");
    } else {
        report.answer("bar", "refused",
                      "A BAR could not be exported and mapped, so that there was nothing to ask about.");
    }
    return {};
}

} // namespace upcie::probes
