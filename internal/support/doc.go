// Package support collects what somebody needs to find a fault on a machine that
// is not theirs, into one archive.
//
// A caller makes Items, each of which collects one file, and calls Write. Every item
// has a time limit and a size limit, and so has the archive as a whole. What fails is
// named in the manifest, and the rest is collected all the same.
//
// Two things are taken out. Redact replaces secrets of a configuration: fields with the
// tag `secret:"value"`. A Mask replaces addresses and identities of subscribers in
// every file; one subscriber has the same placeholder in the whole archive.
//
// The package runs programs of the machine and reads /proc. It knows neither the daemon
// nor its API: the caller's items do.
package support
