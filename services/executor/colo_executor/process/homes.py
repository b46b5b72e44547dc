"""The control group that an attempt is in: of the batch tier, of the online tier, or one of others that it is attached to."""

from colo_common.events.enforcement import KnobValue
from colo_common.model.placement import Placement, replica_token
from colo_executor.journal_lines import AttachedTo
from colo_executor.online import is_online, online_group
from colo_executor.process.attached import AttachedTier
from colo_executor.process.ending import RunningAttempt
from colo_executor.process.online import OnlineTier
from colo_executor.process.terminating import command_of
from colo_executor.process.tier import Tier, group_of

__all__ = ["Homes"]


class Homes:
    """What is done to the group of an attempt, by whoever owns it. Methods raise what the methods of its tier raise."""

    def __init__(self, tier: Tier, online: OnlineTier, attached: AttachedTier, proc_root: str) -> None:
        self._tier = tier
        self._online = online
        self._attached = attached
        self._proc_root = proc_root

    def of(self, placement: Placement, pid: int = 0, attached: AttachedTo | None = None) -> RunningAttempt:
        """The attempt in its group, which need not be there; `attached` is the one of others that the journal names."""
        token = replica_token(placement.replica, placement.attempt)
        if attached is not None:
            return self._attached.home(placement, token, pid, attached)
        if is_online(placement):
            tree, group = self._online.tree, online_group(placement.qos, token)
        else:
            tree, group = self._tier.tree, group_of(token)
        return RunningAttempt(placement=placement, token=token, tree=tree, group=group, pid=pid)

    def reserve(self, running: RunningAttempt) -> None:
        """Reserve what an attempt of an earlier executor has, before the first write to the kernel."""
        if running.attached is not None:
            self._attached.reserve_adopted(running)
        else:
            self._tier_of(running).reserve_adopted(running.token, running.placement)

    def adopt(self, running: RunningAttempt, devices: str) -> None:
        """Keep the values of an attempt of an earlier executor that still runs."""
        if is_online(running.placement):
            self._online.adopt(running.token, running.placement)
        else:
            self._tier.adopt(running.token, running.placement, devices)

    def devices_of(self, running: RunningAttempt) -> str:
        """The rules of devices that the kernel shows for the attempt, "" where everything is open and for online work."""
        return "" if is_online(running.placement) else self._tier.devices_of(running.token)

    def make(self, running: RunningAttempt) -> tuple[KnobValue, ...]:
        """Make the group with all its values; a failure leaves nothing behind."""
        return self._tier_of(running).add(running.token, running.placement)

    def drop(self, running: RunningAttempt) -> bool:
        """Remove the group, or give one of others its old values; False when the kernel refused it."""
        if running.attached is not None:
            return self._attached.drop(running)
        if is_online(running.placement):
            return self._online.drop(running.token, running.placement)
        return self._tier.drop(running.token)

    def terminate(self, running: RunningAttempt) -> bool:
        """Send SIGTERM to every process; False when the command had not begun, so that none of them was it."""
        if running.attached is not None:
            self._attached.terminate(running)
            return True
        if not is_online(running.placement):
            self._tier.boost_weight(running.token)
        has_begun = command_of(self._proc_root, running.pid, running.tree.pids(running.group)) is not None
        running.tree.terminate(running.group)
        return has_begun

    def kill_now(self, running: RunningAttempt) -> bool:
        """Send SIGKILL to every process; whether none is left."""
        if running.attached is not None:
            return self._attached.kill_now(running)
        if is_online(running.placement):
            return running.tree.kill_now(running.group)
        return self._tier.kill_now(running.token)

    def _tier_of(self, running: RunningAttempt) -> Tier | OnlineTier:
        return self._online if is_online(running.placement) else self._tier
