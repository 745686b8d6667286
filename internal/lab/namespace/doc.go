// Package namespace makes named network namespaces as iproute2 does, each with a
// mark by which its owner finds it again, and runs commands in them.
//
// Create makes one, Delete removes it if it carries the mark, and Do calls a
// function on a thread of its own that is in it: the thread ends with the call, so
// that no other goroutine ever runs there.
package namespace
