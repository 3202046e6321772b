// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>

#include "sim/engine.hpp"

namespace upcie::sim {

namespace {

// Feature identifiers (Base Specification 2.0, figure 317).
constexpr std::uint32_t arbitration = 0x01;
constexpr std::uint32_t power_management = 0x02;
constexpr std::uint32_t temperature_threshold = 0x04;
constexpr std::uint32_t error_recovery = 0x05;
constexpr std::uint32_t volatile_write_cache = 0x06;
constexpr std::uint32_t number_of_queues = 0x07;
constexpr std::uint32_t interrupt_coalescing = 0x08;
constexpr std::uint32_t interrupt_vector_configuration = 0x09;
constexpr std::uint32_t write_atomicity = 0x0a;
constexpr std::uint32_t event_configuration = 0x0b;

constexpr nvme::Status not_saveable = specific(0x0d);
constexpr nvme::Status command_sequence_error = generic(0x0c);

bool known(std::uint32_t feature, bool volatile_cache) noexcept {
    switch (feature) {
    case volatile_write_cache:
        return volatile_cache;
    case arbitration:
    case power_management:
    case temperature_threshold:
    case error_recovery:
    case number_of_queues:
    case interrupt_coalescing:
    case interrupt_vector_configuration:
    case write_atomicity:
    case event_configuration:
        return true;
    default:
        return false;
    }
}

std::uint32_t default_value(std::uint32_t feature) noexcept {
    switch (feature) {
    case temperature_threshold:
        return 343;
    case volatile_write_cache:
        return 1;
    default:
        return 0;
    }
}

} // namespace

void Engine::reset_features() {
    for (std::uint32_t feature = 0; feature < features_.size(); ++feature) {
        features_[feature] = default_value(feature);
    }
    vector_config_.assign(std::max(1U, vector_count(options_)), 0);
    for (std::uint32_t vector = 0; vector < vector_config_.size(); ++vector) {
        vector_config_[vector] = vector;
    }
}

// Base Specification 2.0, section 5.27.
Answer Engine::set_features(const Command& command) {
    const std::uint32_t feature = command.cdw10 & 0xff;
    if (!known(feature, options_.volatile_cache)) {
        return {invalid_field};
    }
    if ((command.cdw10 >> 31) != 0) {
        return {not_saveable};
    }
    switch (feature) {
    case number_of_queues: {
        const std::uint32_t sqs = command.cdw11 & 0xffff; // both zero-based
        const std::uint32_t cqs = command.cdw11 >> 16;
        if (sqs == 0xffff || cqs == 0xffff) {
            return {invalid_field};
        }
        const auto exists = [](const auto& queue) { return queue.exists; };
        if (std::any_of(sqs_.begin() + 1, sqs_.end(), exists) || std::any_of(cqs_.begin() + 1, cqs_.end(), exists)) {
            return {command_sequence_error};
        }
        granted_sqs_ = static_cast<std::uint16_t>(std::min<std::uint32_t>(sqs + 1, options_.queues));
        granted_cqs_ = static_cast<std::uint16_t>(std::min<std::uint32_t>(cqs + 1, options_.queues));
        return {{}, (granted_sqs_ - 1U) | (granted_cqs_ - 1U) << 16};
    }
    case interrupt_vector_configuration: {
        const std::uint32_t vector = command.cdw11 & 0xffff;
        if (vector >= vector_config_.size()) {
            return {invalid_field};
        }
        vector_config_[vector] = command.cdw11 & 0x1ffff;
        return {};
    }
    case power_management:
        if ((command.cdw11 & 31) != 0) { // one power state
            return {invalid_field};
        }
        break;
    default:
        break;
    }
    features_[feature] = command.cdw11;
    return {};
}

// Base Specification 2.0, section 5.15. Nothing is saveable, so that saved values are the defaults.
Answer Engine::get_features(const Command& command) {
    const std::uint32_t feature = command.cdw10 & 0xff;
    const std::uint32_t select = (command.cdw10 >> 8) & 7;
    if (!known(feature, options_.volatile_cache) || select > 3) {
        return {invalid_field};
    }
    if (select == 3) {
        return {{}, 1U << 2}; // changeable, not saveable, not of a namespace
    }
    if (feature == number_of_queues) {
        const bool current = select == 0;
        const std::uint32_t sqs = current ? granted_sqs_ : options_.queues;
        const std::uint32_t cqs = current ? granted_cqs_ : options_.queues;
        return {{}, (sqs - 1) | (cqs - 1) << 16};
    }
    if (feature == interrupt_vector_configuration) {
        const std::uint32_t vector = command.cdw11 & 0xffff;
        if (vector >= vector_config_.size()) {
            return {invalid_field};
        }
        return {{}, select == 0 ? vector_config_[vector] : vector};
    }
    return {{}, select == 0 ? features_[feature] : default_value(feature)};
}

} // namespace upcie::sim
