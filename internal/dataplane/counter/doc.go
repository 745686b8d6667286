// Package counter reads and writes what the data path counts: packets and their
// octets.
//
// There are two kinds: per-CPU arrays of struct counter (Read, ReadAll, Zero, Copy), and
// volumes (struct volume), which all CPUs share and which the daemon may add to
// while packets do (ReadVolume, VolumeOf). The package has no state and no lock.
package counter
