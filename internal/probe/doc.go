// Package probe sends real traffic between network namespaces and says
// exactly what was sent, what arrived and what was lost: ICMP echo, UDP with
// sequence numbers, TCP with checked content.
package probe
