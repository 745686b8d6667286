// Package probe sends real traffic and says exactly what was sent, what arrived
// and what was lost: ICMP echo, UDP with sequence numbers, TCP with checked
// content. Both ends may be in one process, between network namespaces, or one of
// them is a Server somewhere else.
package probe

// Here is where this process is.
type Here struct{}

// Do calls f.
func (Here) Do(f func() error) error { return f() }
