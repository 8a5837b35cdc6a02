// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "engine/ops/op.h"

namespace ren {

// Cross entropy of logits [N,H,W,C] (H = W = 1 for classification) against class indices, the mean
// over the targets that count (torch.nn.functional.cross_entropy with label smoothing).
// cross_entropy: logits, labels (i32, one a row), Scalar::inverse_count -> loss, correct, correct5
// (R, f32 scalars): loss is the weighted sum over rows times inverse_count; correct and correct5 count
// rows whose target is the largest logit / among the five largest (ties: fewer than k strictly larger
// or equal ones of lower index). Rows with label ignore_index count nowhere; a label out of range
// makes the loss NaN (the trainer checks labels before they come here).
// cross_entropy_backward: logits, labels, inverse_count, loss_scale -> dlogits =
// weight * loss_scale * inverse_count * (softmax - (1 - smoothing) * onehot - smoothing / C).
// Both take two more inputs where samples are mixed: the partners' labels (i32, one a row) and the share of a
// row's own label (f32 scalar). A row's loss is share * loss(label) + (1 - share) * loss(partner's), each by
// the rules above, an ignored label's being 0. correct and correct5 look at the label with the larger share
// (its own where they are equal), as torchvision's recipes do.
constexpr std::string_view kLossPrefix = "loss/";  // of the nodes' names, before the output's
struct CrossEntropyAttributes final : Attributes {
  float weight = 1.0f;  // of this output in the sum of losses
  float label_smoothing = 0.0f;
  int32_t ignore_index = -100;
  DType gradient_type = DType::f32;
  std::string text() const override;
};

}  // namespace ren
