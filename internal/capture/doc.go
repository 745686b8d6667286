// Package capture reads packets that people have: capture files (pcap, pcapng), and
// hexadecimal text as Wireshark, tshark -x and tcpdump -xx print it.
//
// Open reads a capture file frame by frame. Frames reads a whole file or text, and Text a
// text. It keeps no state.
package capture
