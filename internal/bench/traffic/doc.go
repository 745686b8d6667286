// Package traffic sends packets to a device at a rate, takes what comes out of
// it, and says of each packet what became of it: lost, doubled, overtaken,
// changed, and how long it took. It knows nothing of what is between its two
// interfaces.
//
// Each packet ends in a tag of 12 octets that survives encapsulation and
// translation: it is found from the end of the IP packet. The tag's Internet
// checksum is the same in each packet, so that no checksum around it changes.
package traffic
