// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// The names, numbers and sizes of the RM contract: what lies between NVIDIA's userspace libraries and their kernel
/// driver. Facts of the public headers (NVIDIA open-gpu-kernel-modules) and of recordings; an unknown number stays a
/// number.
#include <upcie/rm/classes.hpp>
#include <upcie/rm/controls.hpp>
#include <upcie/rm/driver_version.hpp>
#include <upcie/rm/escapes.hpp>
#include <upcie/rm/nested.hpp>
#include <upcie/rm/node.hpp>
#include <upcie/rm/parameter_size.hpp>
#include <upcie/rm/statuses.hpp>
#include <upcie/rm/uvm.hpp>
