// SPDX-License-Identifier: BSD-3-Clause
#include <upcie/memory/registry.hpp>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <limits>
#include <map>
#include <mutex>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include <memory/map_buffer.hpp>
#include <upcie/os/system.hpp>

namespace upcie::memory {

const std::atomic<std::uint64_t> Reader::no_epoch{0};

/// Where a reader says how far it is. On a line of its own: the reader writes it while others register.
struct alignas(64) Reader::Seat {
    std::atomic<std::uint64_t> announced{0};
};

/// A piece of memory that is mapped and what it takes to stay so. Shared by the registrations of one device allocation.
struct Registry::Mapped {
    std::shared_ptr<const void> keep;
    iommu::DmaMapping mapping; ///< goes before what it maps
};

struct Registry::Entry {
    TranslationRecord record;
    std::vector<Run> runs;
    std::vector<std::shared_ptr<const Mapped>> mappings;
    std::vector<std::shared_ptr<const DeviceExport>> uses; ///< end with the registration, before its mappings

    /// The runs of `length` bytes that begin `delta` bytes into a mapping; they follow what is in the entry.
    void add(std::shared_ptr<const Mapped> mapped, std::uint64_t delta, std::uint64_t length) {
        std::uint64_t position = 0; // of the extent in the mapping
        runs.reserve(runs.size() + mapped->mapping.extents().size());
        for (const iommu::Extent& extent : mapped->mapping.extents()) {
            const std::uint64_t end = position + extent.length.value();
            if (end > delta && position < delta + length) {
                const std::uint64_t skipped = position < delta ? delta - position : 0;
                const std::uint64_t address = extent.address.value() + skipped;
                const std::uint64_t bytes = std::min(end, delta + length) - (position + skipped);
                // Two allocations may happen to be neighbours: runs are maximal.
                const std::uint64_t follows = runs.empty() ? 0 : runs.back().address + (covered - runs.back().offset);
                if (runs.empty() || follows != address || follows == 0) { // nothing goes on behind the last address
                    runs.push_back({covered, address});
                }
                covered += bytes;
            }
            position = end;
        }
        mappings.push_back(std::move(mapped));
    }
    std::uint64_t covered = 0; ///< bytes that the runs describe
};

struct Registry::State {
    struct Retired {
        std::uint64_t epoch; ///< readers that announced this or more cannot use it
        std::unique_ptr<Entry> entry;
        std::unique_ptr<const TranslationIndex::Leaf> leaf;
    };
    mutable std::mutex mutex;
    std::unordered_map<const TranslationRecord*, std::unique_ptr<Entry>> live;
    std::deque<Retired> retired; ///< by epoch, ascending
    std::vector<std::unique_ptr<Reader::Seat>> seats;
    TranslationIndex index;

    std::mutex device_mutex; // guards what follows; taken before `mutex`
    std::map<const DeviceExport*, std::weak_ptr<const Mapped>> device_mappings;

    explicit State(TranslationIndex made) : index{std::move(made)} {}

    /// Takes out what no reader can be using. The caller lets it go without the lock: unmapping is slow, and what an
    /// entry keeps may come back to this registry.
    [[nodiscard]] std::vector<Retired> take_reclaimable(std::uint64_t epoch) {
        for (const auto& seat : seats) {
            epoch = std::min(epoch, seat->announced.load(std::memory_order_acquire));
        }
        std::vector<Retired> taken;
        while (!retired.empty() && retired.front().epoch <= epoch) {
            taken.push_back(std::move(retired.front()));
            retired.pop_front();
        }
        return taken;
    }
};

// ---- Registration

Registration::Registration(Registration&& other) noexcept
    : registry_{std::move(other.registry_)}, record_{std::exchange(other.record_, nullptr)} {}

Registration& Registration::operator=(Registration&& other) noexcept {
    if (this != &other) {
        unregister();
        registry_ = std::move(other.registry_);
        record_ = std::exchange(other.record_, nullptr);
    }
    return *this;
}

void Registration::unregister() noexcept {
    if (record_ != nullptr) {
        registry_->remove(std::exchange(record_, nullptr));
        registry_.reset();
    }
}

namespace {

template <class Resolve>
Result<std::vector<iommu::Extent>> collect(const Resolve& resolve, ByteCount bytes, const std::string& subject) {
    std::vector<iommu::Extent> extents;
    ByteCount done;
    do {
        const Resolution resolution = resolve(done, bytes - done);
        if (!resolution) {
            return tl::unexpected{to_error(resolution.refusal, "resolve", subject)};
        }
        extents.push_back(resolution.extent);
        done += resolution.extent.length;
    } while (done < bytes);
    return extents;
}

} // namespace

Result<std::vector<iommu::Extent>> Registration::extents(ByteCount offset, ByteCount bytes) const {
    if (record_ == nullptr) {
        return tl::unexpected{to_error(Refusal::not_registered, "resolve", "a registration that was given up")};
    }
    return collect([&](ByteCount done, ByteCount rest) { return resolve(offset + done, rest); }, bytes,
                   fmt::format("offset {} of a registration of {} bytes", offset.value(), size().value()));
}

// ---- Reader

Reader::Reader(Reader&& other) noexcept
    : registry_{std::move(other.registry_)},
      seat_{std::exchange(other.seat_, nullptr)},
      root_{std::exchange(other.root_, nullptr)},
      epoch_{std::exchange(other.epoch_, &no_epoch)},
      announced_{std::exchange(other.announced_, 0)} {}

Reader& Reader::operator=(Reader&& other) noexcept {
    if (this != &other) {
        Reader old{std::move(*this)};
        registry_ = std::move(other.registry_);
        seat_ = std::exchange(other.seat_, nullptr);
        root_ = std::exchange(other.root_, nullptr);
        epoch_ = std::exchange(other.epoch_, &no_epoch);
        announced_ = std::exchange(other.announced_, 0);
    }
    return *this;
}

Reader::~Reader() {
    if (registry_ != nullptr) {
        registry_->leave(seat_);
    }
}

void Reader::announce(std::uint64_t epoch) noexcept {
    announced_ = epoch;
    if (seat_ != nullptr) {
        seat_->announced.store(epoch, std::memory_order_release);
    }
}

// ---- Registry

Registry::Registry(std::shared_ptr<iommu::AddressSpace> space, TranslationIndex index)
    : space_{std::move(space)}, state_{std::make_unique<State>(std::move(index))} {}

// Registrations and readers hold the registry, so none is left here.
Registry::~Registry() = default;

Result<std::shared_ptr<Registry>> Registry::create(os::System& system, std::shared_ptr<iommu::AddressSpace> space) {
    // The index is made first and needs somewhere to put replaced leaves; the registry is made from the index.
    auto target = std::make_shared<Registry*>(nullptr);
    auto index = TranslationIndex::create(system, [target](std::unique_ptr<const TranslationIndex::Leaf> leaf) {
        // Called by insert and remove alone, under the lock; the epoch that remove() makes next covers it.
        Registry& registry = **target;
        registry.state_->retired.push_back(
            {registry.epoch_.load(std::memory_order_relaxed) + 1, nullptr, std::move(leaf)});
    });
    if (!index) {
        return tl::unexpected{std::move(index).error()};
    }
    std::shared_ptr<Registry> registry{new Registry{std::move(space), std::move(*index)}};
    *target = registry.get();
    return registry;
}

Result<Registration> Registry::register_memory(void* start, ByteCount length) {
    const auto base = reinterpret_cast<std::uintptr_t>(start);
    const std::uint64_t granule = space_->granule().value();
    if (length == ByteCount{} || length.value() > std::numeric_limits<std::uint64_t>::max() - base - granule) {
        return fail(EINVAL, "register memory", fmt::format("{} bytes at {:#x}", length.value(), base),
                    "Pass a range that is not empty and does not wrap around the address space");
    }
    const std::uint64_t first = base & ~(granule - 1);
    const std::uint64_t end = (base + length.value() + granule - 1) & ~(granule - 1);
    auto mapping = space_->map_memory(reinterpret_cast<void*>(first), ByteCount{end - first});
    if (!mapping) {
        return tl::unexpected{std::move(mapping).error()};
    }
    return register_mapping(start, length, std::move(*mapping), ByteCount{base - first});
}

Result<Registration> Registry::register_buffer(const Buffer& buffer) {
    if (buffer.on_device()) {
        return register_device_memory(*buffer.exports(), DevicePointer{reinterpret_cast<std::uintptr_t>(buffer.data())},
                                      buffer.size());
    }
    auto mapped = map_buffer(*space_, buffer);
    if (!mapped) {
        return tl::unexpected{std::move(mapped).error()};
    }
    return register_mapping(buffer.data(), buffer.size(), std::move(mapped->mapping));
}

Result<Registration> Registry::register_mapping(void* start, ByteCount length, iommu::DmaMapping mapping,
                                                ByteCount delta, std::shared_ptr<void> keep) {
    const auto base = reinterpret_cast<std::uintptr_t>(start);
    constexpr std::uint64_t limit = TranslationIndex::address_limit;
    if (length == ByteCount{} || base >= limit || length.value() > limit - base) {
        return fail(EINVAL, "register memory", fmt::format("{} bytes at {:#x}", length.value(), base),
                    "Pass a range that is not empty and lies below 2^48 less 4 GiB");
    }
    if (delta > mapping.length() || length > mapping.length() - delta) {
        return fail(EINVAL, "register memory", fmt::format("{} bytes at {:#x}", length.value(), base),
                    fmt::format("The mapping holds {} bytes and the range starts {} bytes into it: map all of it first",
                                mapping.length().value(), delta.value()));
    }
    auto entry = std::make_unique<Entry>();
    entry->add(std::make_shared<Mapped>(Mapped{std::move(keep), std::move(mapping)}), delta.value(), length.value());
    if (entry->covered != length.value()) {
        return fail(EINVAL, "register memory", fmt::format("{} bytes at {:#x}", length.value(), base),
                    "The mapping has no extents there: it was unmapped already");
    }
    return insert(std::move(entry), base, length.value());
}

Result<std::shared_ptr<const Registry::Mapped>>
Registry::map_export(const std::shared_ptr<const DeviceExport>& exported) {
    // Held through the mapping: two threads that register the same allocation are to have the same one.
    const std::lock_guard lock{state_->device_mutex};
    std::erase_if(state_->device_mappings, [](const auto& one) { return one.second.expired(); });
    auto& slot = state_->device_mappings[exported.get()];
    if (auto known = slot.lock()) {
        return known;
    }
    if (!space_->translating() && exported->bus.empty()) {
        return fail(EOPNOTSUPP, "map device memory", space_->describe(),
                    "Nothing translates here, so the device needs bus addresses, and without an importer nobody knows "
                    "them (DeviceExports::Options::importer).");
    }
    auto mapping = space_->map_dmabuf(exported->exported.fd.get(), exported->exported.file_offset, exported->length,
                                      exported->bus);
    if (!mapping) {
        return tl::unexpected{std::move(mapping).error()};
    }
    auto mapped = std::make_shared<const Mapped>(Mapped{exported->memory(), std::move(*mapping)});
    slot = mapped;
    return mapped;
}

Result<Registration> Registry::register_device_memory(DeviceExports& exports, DevicePointer start, ByteCount length) {
    const std::uint64_t base = start.value();
    const auto subject = [&] { return fmt::format("{} bytes at device address {:#x}", length.value(), base); };
    constexpr std::uint64_t limit = TranslationIndex::address_limit;
    if (length == ByteCount{} || base >= limit || length.value() > limit - base) {
        return fail(EINVAL, "register device memory", subject(),
                    "Pass a range that is not empty and lies below 2^48 less 4 GiB");
    }
    auto entry = std::make_unique<Entry>();
    while (entry->covered < length.value()) {
        const std::uint64_t at = base + entry->covered;
        const auto exported = exports.export_at(DevicePointer{at});
        if (!exported) {
            Error error = exported.error();
            if (entry->covered != 0 && error.is(EFAULT)) {
                error.hint = fmt::format("The range of {} leaves its allocations after {} bytes. {}", subject(),
                                         entry->covered, error.hint);
            }
            return tl::unexpected{std::move(error)};
        }
        const gpu::Allocation& allocation = (*exported)->allocation;
        const std::uint64_t inside = at - allocation.base.value();
        const std::uint64_t bytes = std::min(length.value() - entry->covered, allocation.size.value() - inside);
        auto mapped = map_export(*exported);
        if (!mapped) {
            return tl::unexpected{std::move(mapped).error()};
        }
        entry->uses.push_back(*exported);
        const std::uint64_t before = entry->covered;
        entry->add(std::move(*mapped), at - (*exported)->start.value(), bytes);
        if (entry->covered - before != bytes) {
            return fail(EPROTO, "register device memory", subject(), "The mapping does not describe what was mapped.");
        }
    }
    return insert(std::move(entry), base, length.value());
}

Result<Registration> Registry::insert(std::unique_ptr<Entry> entry, std::uint64_t base, std::uint64_t length) {
    entry->record = {base, length, entry->runs.front().address, entry->runs.size() > 1 ? entry->runs.data() : nullptr,
                     entry->runs.size()};

    std::vector<State::Retired> reclaimed;
    const std::lock_guard lock{state_->mutex};
    if (auto inserted = state_->index.insert(entry->record); !inserted) {
        return tl::unexpected{std::move(inserted).error()};
    }
    Registration registration;
    registration.registry_ = shared_from_this();
    registration.record_ = &entry->record;
    state_->live.emplace(registration.record_, std::move(entry));
    if (!state_->retired.empty() && state_->retired.back().epoch > epoch_.load(std::memory_order_relaxed)) {
        epoch_.store(state_->retired.back().epoch, std::memory_order_release); // leaves were replaced
    }
    reclaimed = state_->take_reclaimable(epoch_.load(std::memory_order_relaxed));
    return registration;
}

void Registry::remove(const TranslationRecord* record) noexcept {
    std::vector<State::Retired> reclaimed;
    std::vector<std::shared_ptr<const DeviceExport>> uses; // end without the lock
    const std::lock_guard lock{state_->mutex};
    state_->index.remove(*record);
    // Removal first, then the new epoch: a reader that sees the epoch sees the removal.
    const std::uint64_t epoch = epoch_.load(std::memory_order_relaxed) + 1;
    const auto place = state_->live.find(record);
    uses.swap(place->second->uses);
    state_->retired.push_back({epoch, std::move(place->second), nullptr});
    state_->live.erase(place);
    epoch_.store(epoch, std::memory_order_release);
    reclaimed = state_->take_reclaimable(epoch);
}

Result<std::vector<iommu::Extent>> Registry::resolve(const void* pointer, ByteCount bytes) {
    const std::lock_guard lock{state_->mutex};
    const auto address = reinterpret_cast<std::uintptr_t>(pointer);
    return collect(
        [&](ByteCount done, ByteCount rest) {
            return TranslationIndex::resolve(state_->index.root(), address + done.value(), rest.value());
        },
        bytes, fmt::format("{} bytes at {:#x}", bytes.value(), address));
}

Reader Registry::attach() {
    Reader reader;
    reader.registry_ = shared_from_this();
    reader.root_ = state_->index.root();
    reader.epoch_ = &epoch_;
    const std::lock_guard lock{state_->mutex};
    reader.announced_ = epoch_.load(std::memory_order_relaxed);
    auto& seat = state_->seats.emplace_back(std::make_unique<Reader::Seat>());
    seat->announced.store(reader.announced_, std::memory_order_relaxed);
    reader.seat_ = seat.get();
    return reader;
}

void Registry::leave(Reader::Seat* seat) noexcept {
    std::vector<State::Retired> reclaimed;
    const std::lock_guard lock{state_->mutex};
    std::erase_if(state_->seats, [&](const std::unique_ptr<Reader::Seat>& other) { return other.get() == seat; });
    reclaimed = state_->take_reclaimable(epoch_.load(std::memory_order_relaxed));
}

std::size_t Registry::reclaim() {
    std::vector<State::Retired> reclaimed;
    const std::lock_guard lock{state_->mutex};
    reclaimed = state_->take_reclaimable(epoch_.load(std::memory_order_relaxed));
    return static_cast<std::size_t>(std::count_if(state_->retired.begin(), state_->retired.end(),
                                                  [](const State::Retired& one) { return one.entry != nullptr; }));
}

std::size_t Registry::live_count() const {
    const std::lock_guard lock{state_->mutex};
    return state_->live.size();
}

ByteCount Registry::index_memory() const {
    const std::lock_guard lock{state_->mutex};
    return state_->index.leaf_memory();
}

} // namespace upcie::memory
