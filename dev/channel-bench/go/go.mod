module unbroken/channel-bench

go 1.21
