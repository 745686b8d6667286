package trafficrun

//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -type traffic_call -type traffic_place -type traffic_shown -type traffic_wrong traffic ../../../bpf/traffic.c -- -O2 -g -Wall -Werror -mcpu=v3 -I../../../bpf -idirafter /usr/include/x86_64-linux-gnu -idirafter /usr/include/aarch64-linux-gnu

//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -type request_fate requests ../../../bpf/requests.c -- -O2 -g -Wall -Werror -mcpu=v3 -I../../../bpf -idirafter /usr/include/x86_64-linux-gnu -idirafter /usr/include/aarch64-linux-gnu
