// Package bench measures the data path from outside: it starts the built
// binary in network namespaces of its own, hands frames to the pinned program,
// and sets what a packet costs beside L2 forwarding and the kernel.
package bench
