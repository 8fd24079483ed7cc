"""Registers the backend hccl; here it is gloo, on copies in the host's memory."""

import torch.distributed as dist

import habana_frameworks.torch.core  # noqa: F401


class _Work(dist.Work):
    """What arrived is on the device when somebody has waited for it."""

    def __init__(self, work, pairs=()):
        super().__init__()
        self._work, self._pairs = work, pairs

    def wait(self, timeout=None):
        self._work.wait()
        for own, host in self._pairs:
            own.copy_(host)
        return True


def _nest(value, change):
    return [_nest(one, change) for one in value] if isinstance(value, list) else change(value)


class _Copies(dist.ProcessGroup):
    def __init__(self, store, rank, size, timeout):
        super().__init__(rank, size)
        self._host = dist.ProcessGroupGloo(store, rank, size, timeout)

    def getBackendName(self):  # noqa: N802 - torch's name
        return "hccl"

    def _passed(self, name, *given):
        """With the host's copies in the place of every tensor, and copied back."""
        pairs = []

        def copied(value):
            if not hasattr(value, "cpu"):
                return value
            pairs.append((value, value.cpu()))
            return pairs[-1][1]

        return _Work(getattr(self._host, name)(*(_nest(one, copied) for one in given)), pairs)

    def allreduce(self, tensors, options):
        return self._passed("allreduce", tensors, options)

    def broadcast(self, tensors, options):
        return self._passed("broadcast", tensors, options)

    def allgather(self, parts, tensors, options):
        return self._passed("allgather", parts, tensors, options)

    def reduce_scatter(self, tensors, parts, options):
        return self._passed("reduce_scatter", tensors, parts, options)

    def alltoall_base(self, got, sent, got_sizes, sent_sizes, options):
        return self._passed("alltoall_base", got, sent, got_sizes, sent_sizes, options)

    def send(self, tensors, rank, tag):
        return self._passed("send", tensors, rank, tag)

    def recv(self, tensors, rank, tag):
        return self._passed("recv", tensors, rank, tag)

    def barrier(self, options):
        return _Work(self._host.barrier(options))


if not hasattr(dist.Backend, "HCCL"):
    dist.Backend.register_backend("hccl", _Copies, devices=["hpu"])
