/* SPDX-License-Identifier: Apache-2.0 */
/* The least that a user of the installed library does: see that it fits, call it, read an error. */
#include <renaissance_c.h>
#include <stdio.h>

int main(void) {
  ren_model *model = NULL;
  int32_t status;
  uint32_t abi = ren_abi_version();
  if (abi >> 16 != REN_ABI_VERSION >> 16 || (abi & 0xffffu) < (REN_ABI_VERSION & 0xffffu)) {
    printf("library ABI %08x, header %08x\n", (unsigned)abi, (unsigned)REN_ABI_VERSION);
    return 1;
  }
  status = ren_model_load("/nowhere/net.onnx", NULL, &model);
  if (status == REN_OK || model != NULL) return 1;
  printf("renaissance %s: %s: %s\n", ren_version(), ren_status_name(status), ren_last_error_message());
  ren_model_destroy(model);
  return 0;
}
