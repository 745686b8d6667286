// Package xdp hands frames to the data path and sends frames past it: Program
// runs the XDP program on a frame of the daemon's (Test counts and sends nothing,
// Inject sends what it forwards), Transmitter sends by an interface.
//
// All methods may be called concurrently. The package writes no table.
package xdp
