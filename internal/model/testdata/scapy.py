"""Reads a capture and says of each frame whether scapy, once it has forgotten
every length and checksum, writes the same octets again. Not forgotten are
those that are 0 on purpose: UDP over IPv4 goes without a checksum."""
import logging
import sys

logging.getLogger("scapy.runtime").setLevel(logging.ERROR)
from scapy.all import Ether, IP, IPv6, TCP, UDP, ICMP, bind_layers, conf, rdpcap
from scapy.contrib.gtp import GTPHeader, GTP_U_Header
from scapy.layers.inet6 import IPv6ExtHdrSegmentRouting, _ICMPv6

# Ethernet is next header 143 (RFC 8986 section 10.1).
bind_layers(IPv6, Ether, nh=143)
bind_layers(IPv6ExtHdrSegmentRouting, Ether, nh=143)


def forget(packet):
    layer = packet
    while layer:
        if isinstance(layer, IP):
            layer.len = layer.ihl = layer.chksum = None
        elif isinstance(layer, IPv6):
            layer.plen = None
        elif isinstance(layer, UDP):
            layer.len = None
            if layer.chksum:
                layer.chksum = None
        elif isinstance(layer, TCP):
            layer.chksum = layer.dataofs = None
        elif isinstance(layer, ICMP):
            layer.chksum = None
        elif isinstance(layer, _ICMPv6):
            layer.cksum = None
        elif isinstance(layer, GTPHeader):
            layer.length = None
        layer = layer.payload
    return packet


for packet in rdpcap(sys.argv[1]):
    before = bytes(packet)
    after = bytes(forget(packet.copy()))
    print("same" if after == before else "differs", after.hex())
