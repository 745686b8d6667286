package behaviordoc

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"github.com/culvert-net/culvert/srv6"
)

const headerStart = `/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Generated from package srv6 by "go generate ./srv6". Do not edit.
 * The SRv6 behaviours and their flavors, with the numbers of srv6.Behavior and srv6.Flavor.
 */
#ifndef CULVERT_SRV6_BEHAVIORS_H
#define CULVERT_SRV6_BEHAVIORS_H

`

// WriteHeader writes bpf/srv6/behaviors.h, the numbers that the data path knows
// the behaviours by.
func WriteHeader(w io.Writer) error {
	out := bufio.NewWriter(w)
	out.WriteString(headerStart)
	fmt.Fprintf(out, "enum behavior {\n\tBEHAVIOR_NONE = %d,\n", srv6.BehaviorNone)
	for _, b := range srv6.Behaviors() {
		fmt.Fprintf(out, "\t%s = %d,\n", cName(b), b)
	}
	out.WriteString("};\n\nenum flavor {\n")
	for _, f := range srv6.Flavors() {
		fmt.Fprintf(out, "\tFLAVOR_%s = %d,\n", cName(f), f)
	}
	out.WriteString("};\n\n#endif\n")
	return out.Flush()
}

// cName respells a standard's name for C: End.M.GTP4.E is END_M_GTP4_E.
func cName(name fmt.Stringer) string {
	return strings.NewReplacer(".", "_", "-", "_").Replace(strings.ToUpper(name.String()))
}
