// Package scale is three experiments on the same machinery: `culvert bench scale`, the
// cost of a packet as tables grow; `scaling`, two cores over one; and `upf`, sessions
// and their N4. Each sort of tables has a node of its own (scaleBench), so that no
// table is larger than its own dimension says.
package scale
