// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <vector>

#include "engine/base/status.h"
#include "engine/train/trainer.h"

// What has to be the same for a training to go on as if it had not stopped: kept in checkpoints as text, and
// compared name by name. docs/checkpoints.md lists every option with the side that it is on.
namespace ren {

using Facts = std::map<std::string, std::string>;

Facts training_facts(const TrainerOptions& options, const Graph& model);  // the options
Facts parameter_facts(const Graph& model);                                // by name: what is trained, and how
std::vector<std::string> node_facts(const Graph& model);                  // each node's op and attributes

// A name as a checkpoint can hold it: UTF-8 without control characters.
std::string printable(const std::string& name);

// Adds each difference to `problems`, with both values. For data, names that one side lacks are no
// difference.
void compare_options(const Facts& now, const Facts& then, Problems& problems);
void compare_data(const Facts& now, const Facts& then, Problems& problems);
// Parameters that differ in the same way are told together.
void compare_parameters(const Facts& now, const Facts& then, Problems& problems);
void compare_nodes(const Graph& model, const std::vector<std::string>& then, Problems& problems);

}  // namespace ren
