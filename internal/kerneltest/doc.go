// Package kerneltest compares the data path with the kernel's own SRv6 (seg6
// and seg6local): the same frames in, the same packets out, byte for byte, but
// for the differences that it lists with the reason for each.
package kerneltest
