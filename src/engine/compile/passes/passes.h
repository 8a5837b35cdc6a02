// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/compile/spec.h"
#include "engine/ir/graph.h"

namespace ren {

struct PassContext {
  const TrainingSpec& spec;
  const VariantSpec& variant;
  bool training() const { return variant.role == Role::step || variant.role == Role::accumulate; }
};

// Sets every node's shapes for the variant's batch.
void rebatch(Graph& graph, const PassContext& context);
// Turns normalisations and dropout into their inference form; evaluation and prediction only.
void infer_mode(Graph& graph, const PassContext& context);
// Puts load_batch in front: images and labels from the input slots, scalars from the record.
void attach_input(Graph& graph, const PassContext& context);
// Adds the losses, or keeps the outputs for prediction.
void attach_loss(Graph& graph, const PassContext& context);
// A bias right before a training normalisation cancels there: only the running mean sees it.
void absorb_bias(Graph& graph, const PassContext& context);
// Lets a max pool come before the ReLU that it alone reads: there are fewer values behind it.
void relu_behind_pools(Graph& graph, const PassContext& context);
// Appends the backward nodes; gradients of trained parameters land in G.
void autodiff(Graph& graph, const PassContext& context);
// Splits composite normalisations into statistics and one pointwise expression.
void lower(Graph& graph, const PassContext& context);
// 16-bit features and weights' copies for the mixed precisions.
void amp(Graph& graph, const PassContext& context);
// Inlines pointwise expressions into the pointwise and reduce nodes that read them, and drops
// what nobody reads.
void fuse(Graph& graph, const PassContext& context);
// Lets a max pool compute the values that it alone reads, so that they are never stored.
void compute_in_pools(Graph& graph, const PassContext& context);
// Gives what backward takes from a ReLU's output, its sign, a tensor of bits.
void pack_masks(Graph& graph, const PassContext& context);
// Lets a reduction write, in passing, the pointwise value that it reads and others read again.
void store_in_reductions(Graph& graph, const PassContext& context);
// Makes one of two reductions that read the same tensor.
void merge_reductions(Graph& graph, const PassContext& context);
// Makes one of two pointwise nodes of backward that read the same tensor, where that takes no memory.
void merge_pointwise(Graph& graph, const PassContext& context);
// Gives the largest activations' memory back after forward where backward can write them again, in a
// reduction that reads what they are made of.
void recompute(Graph& graph, const PassContext& context);
// Lets a convolution give, in passing, the sums that a normalisation behind it needs, also one behind a
// concatenation.
void sum_in_convolutions(Graph& graph, const PassContext& context);
// Lets forward's expressions compute a normalisation's statistics from such sums, and joins what else is made
// of them, for backward and the running statistics, in one node behind forward.
void statistics_from_sums(Graph& graph, const PassContext& context);
// Lets expressions read a window of channels where it lies, instead of a copy that a slice makes.
void read_windows(Graph& graph, const PassContext& context);
// Leaves the zeros out of the gradient that a strided convolution of one pixel gives: its reader puts them
// in.
void spread_gradients(Graph& graph, const PassContext& context);
// Appends the range operations that end a step.
void update(Graph& graph, const PassContext& context);

// Removes nodes of which no output is read, kept or outside F and T.
void remove_dead_nodes(Graph& graph);

}  // namespace ren
