// Package fuzzing makes networks and frames for the comparison of the data
// path with the reference model: valid packets for whatever the network does,
// changed at random, and noise. The same seed makes the same.
package fuzzing
