// Package te has the values of traffic engineering: a topology, what is asked of it, and
// which segment lists carry that. Its functions are pure.
//
// Packages below it find shortest paths and the shares of links (graph), lists that keep
// links from filling up (optimize), and the way from one routing to the next (change).
// Rates are in bit/s and of IP packets as the network carries them: with what the headend
// pushes, without Ethernet.
package te
